// The two kinds of failure.
//
// The environment's failures (a bad file, a lost peer, a full disk) are muster::Error: a message
// that says who, what, expected, got and what to do, and the exit code of the process that dies
// of it. A broken invariant is a bug and aborts: MUSTER_CHECK.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace muster {

// Exit codes of all programs; documented in docs/TRAINING.md.
enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,      // anything that has no code of its own
  kUsage = 2,        // command line, config or processor; nothing was started
  kData = 3,         // a data file is missing, truncated or foreign
  kNonfinite = 4,    // a loss, gradient or weight was not finite
  kDeadline = 5,     // a wait ran into its deadline
  kProcessDied = 6,  // a worker or the server was killed or crashed
  kPeerFailed = 7,   // this process is well, but another one of the job failed
  kRefused = 8,      // a worker did not fit the job (token, version, graph, settings, data)
  kInterrupted = 130,
  kTerminated = 143,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  template <typename... Args>
  Error(ExitCode code, fmt::format_string<Args...> format,
        Args&&... args) requires(sizeof...(Args) > 0)
      : Error(code, fmt::format(format, std::forward<Args>(args)...)) {}

  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Why a job cannot go on, as a value: what the server reports and what the launcher prints.
struct JobFailure {
  ExitCode code = ExitCode::kFailure;
  std::optional<uint32_t> rank;  // the worker that it is about; empty: the server, or several
  std::string what;              // one line: who, what, when
};

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace muster

// Aborts with file, line and the condition when an invariant of this program is broken.
#define MUSTER_CHECK(condition) \
  ((condition) ? (void)0 : ::muster::CheckFailed(__FILE__, __LINE__, #condition))
