// One log line format for all processes: time, process, level, message. Lines go to standard
// error, which the launcher sends to the run directory's log files.
#pragma once

#include <fmt/core.h>

#include <string>

namespace muster {

// Names this process in its log lines: "server", "worker-3". Call once, at the start of main.
void InitLog(const std::string& process);

enum class LogLevel { kInfo, kWarning, kError };

// Lines below this level are left out from now on.
void SetLogLevel(LogLevel least);

// One line. Formatting is done in log.cc, so that its templates are compiled once.
void LogLine(LogLevel level, fmt::string_view format, fmt::format_args arguments);

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, format, fmt::make_format_args(args...));
}

template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, format, fmt::make_format_args(args...));
}

template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, format, fmt::make_format_args(args...));
}

}  // namespace muster
