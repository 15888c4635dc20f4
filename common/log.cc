#include "common/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>

namespace muster {

void InitLog(const std::string& process) {
  auto logger = std::make_shared<spdlog::logger>(
      process, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %n %l: %v");
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace muster
