// The log line format of all processes: time, process, level, message. Lines go to standard error,
// which the launcher redirects to the run directory's log files.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace muster {

// Names this process in its log lines: "server", "worker-3". Call once, at the start of main.
void InitLog(const std::string& process);

// From now on, also appends lines to this file, unless it is standard error. Returns false on
// failure.
bool AlsoLogTo(const std::string& path);

enum class LogLevel { kInfo, kWarning, kError };

// Drops all further lines below this level.
void SetLogLevel(LogLevel least);

// Logs one line. Line breaks are escaped, and warnings and errors are truncated (Shown). The
// formatting code is in log.cc so that its templates are compiled only once.
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

// Limits log lines that a peer can trigger at will. The first 20 are logged, and then one each time
// the count doubles. Such a line includes the count.
class RareLine {
 public:
  // Counts one event and returns whether to log it.
  bool Count() { return ++count_ <= 20 || (count_ & (count_ - 1)) == 0; }
  uint64_t count() const { return count_; }

 private:
  uint64_t count_ = 0;
};

}  // namespace muster
