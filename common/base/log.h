// One log line format for all processes: time, process, level, message. Lines go to standard
// error, which the launcher sends to the run directory's log files.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace muster {

// Names this process in its log lines: "server", "worker-3". Call once, at the start of main.
void InitLog(const std::string& process);

// Appends every later line to this file, too, unless standard error is that file. Returns false
// where that cannot be done.
bool AlsoLogTo(const std::string& path);

enum class LogLevel { kInfo, kWarning, kError };

// Lines below this level are left out from now on.
void SetLogLevel(LogLevel least);

// One line: what would not fit into one is escaped, and warnings and errors are cut (Shown).
// Formatting is done in log.cc, so that its templates are compiled once.
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

// For lines that somebody else can cause as often as he likes: each of the first 20 is worth one,
// then every one that doubles their number. Such a line says how many there were.
class RareLine {
 public:
  // Counts one more. True: worth a line.
  bool Count() { return ++count_ <= 20 || (count_ & (count_ - 1)) == 0; }
  uint64_t count() const { return count_; }

 private:
  uint64_t count_ = 0;
};

}  // namespace muster
