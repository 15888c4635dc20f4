#include "common/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <utility>

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
  struct stat terminal {
  }, file{};
  if (::stat(path.c_str(), &file) == 0) {
    if (!S_ISREG(file.st_mode)) return false;  // opening a pipe would block
    const bool same = ::fstat(STDERR_FILENO, &terminal) == 0 && terminal.st_dev == file.st_dev &&
                      terminal.st_ino == file.st_ino;
    if (same) return true;
  }
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_pattern(kLogPattern);
    spdlog::default_logger()->sinks().push_back(std::move(sink));
    return true;
  } catch (const spdlog::spdlog_ex&) {
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
