#include "common/base/log.h"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr const char* kLogPattern = "%Y-%m-%d %H:%M:%S.%e %n %l: %v";

spdlog::level::level_enum Level(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

void InitLog(const std::string& process) {
  auto logger = std::make_shared<spdlog::logger>(
      process, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern(kLogPattern);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

bool AlsoLogTo(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  try {
    const UniqueFd fd = OpenPlainFile(path, "a log file", O_WRONLY | O_CREAT | O_APPEND);
    if (IsStillAt(STDERR_FILENO, path)) return true;
    if (!fd.valid()) return false;
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(
        "/proc/self/fd/" + std::to_string(fd.get()));  // the file that was checked
    sink->set_pattern(kLogPattern);
    spdlog::default_logger()->sinks().push_back(std::move(sink));
    return true;
  } catch (const spdlog::spdlog_ex&) {
    return false;
  } catch (const Error&) {
    return false;
  }
}

void SetLogLevel(LogLevel least) { spdlog::set_level(Level(least)); }

void LogLine(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  spdlog::logger* const logger = spdlog::default_logger_raw();
  if (!logger->should_log(Level(level))) return;
  // Our own info lines may be long, such as a run's results.
  const size_t most = level == LogLevel::kInfo ? std::numeric_limits<size_t>::max() : kMostShown;
  const std::string line = ShownLines(fmt::vformat(format, arguments), most);
  logger->log(Level(level), spdlog::string_view_t(line));
}

}  // namespace muster
