#include "common/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <memory>

namespace muster {

void InitLog(const std::string& process) {
  auto logger = std::make_shared<spdlog::logger>(
      process, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %n %l: %v");
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

std::string Printable(std::string_view words) {
  constexpr size_t kMost = 500;
  std::string line(words.substr(0, kMost));
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return words.size() > kMost ? line + " …" : line;
}

}  // namespace muster
