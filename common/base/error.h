// Error handling distinguishes two kinds of failure.
//
// Failures of the environment (a bad file, a lost peer, a full disk) throw muster::Error. It holds
// the exit code of the process and a message: what failed, where, expected and actual value, and
// what to do. A broken invariant is a bug, and MUSTER_CHECK aborts the program.
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
  kFailure = 1,      // any failure without its own code
  kUsage = 2,        // command line, config or processor; nothing was started
  kData = 3,         // a data file is missing, truncated or in another format
  kNonfinite = 4,    // a loss, gradient or weight was not finite
  kDeadline = 5,     // a deadline expired
  kProcessDied = 6,  // a worker or the server was killed or crashed
  kPeerFailed = 7,   // this process is fine, but another process of the job failed
  kRefused = 8,      // a worker did not match the job (token, version, graph, settings, data)
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

// The reason why a job cannot continue. The server reports it and the launcher prints it.
struct JobFailure {
  ExitCode code = ExitCode::kFailure;
  std::optional<uint32_t> rank;  // the affected worker; empty: the server, or several workers
  std::string what;              // one line: what failed, where, and when
};

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace muster

// Aborts with file, line and the condition when an invariant of this program is broken.
#define MUSTER_CHECK(condition) \
  ((condition) ? (void)0 : ::muster::CheckFailed(__FILE__, __LINE__, #condition))
