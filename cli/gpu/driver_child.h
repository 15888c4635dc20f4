// Asks the NVIDIA driver in a child process: a call into a broken driver may never return, and no
// signal ends a process in such a call.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/fd.h"

namespace muster {

// The first use of a driver wakes all GPUs, which takes seconds.
inline constexpr double kDriverSeconds = 60;

// Used by the main thread. Other threads may run only code of the C library, whose locks fork
// knows. The child lives from the first question to the destructor, so that it opens the driver
// once. It has none of this process's files, because one that cannot be killed would keep locks and
// pipes.
class DriverChild {
 public:
  // Tells which call comes next, for the error if it does not return.
  using Enter = std::function<void(const std::string& call)>;
  // Runs in the child, once for each question, and keeps its state there.
  using Answer = std::function<std::string(char question, const Enter& enter)>;

  // `first_call` comes first. Throws Error(kFailure).
  DriverChild(const std::string& first_call, Answer answer, double patience_s = kDriverSeconds);
  ~DriverChild() { End(); }
  DriverChild(const DriverChild&) = delete;
  DriverChild& operator=(const DriverChild&) = delete;

  // Returns nothing if the driver crashes the child. Throws Error(kDeadline) if it does not answer
  // in time, and Error(kInterrupted) or Error(kTerminated) if a signal that this process blocks
  // arrives meanwhile; the signal stays pending. The next question gets a new child.
  std::optional<std::string> Ask(char question);
  // The last call that the child made.
  std::string call() const;

 private:
  struct Unmap {
    void operator()(char* page) const;
  };

  void Start();
  // Waits until the child has sent something, or has ended.
  void Await(double until);
  // Kills the child. Leaves one that cannot be killed to the kernel.
  void End();

  const std::string first_call_;
  const Answer answer_;
  const double patience_s_;
  const std::unique_ptr<char, Unmap> call_;  // shared with the child
  UniqueFd socket_;
  pid_t pid_ = 0;
};

}  // namespace muster
