// Delivers signals as readable events, without handlers.
#pragma once

#include <csignal>
#include <optional>

#include "common/base/fd.h"

namespace muster {

struct ReceivedSignal {
  int number;
  bool from_terminal;  // a key or a hangup; false: a process sent it
};

// Receives the stop signals (common/base/signals.h), SIGUSR1 and SIGCHLD while the object lives.
// SIGPIPE stays ignored for good: writing to a closed pipe returns an error instead. Create it
// once, in the main thread, before any other thread exists. Children must unblock these signals.
class SignalSource {
 public:
  SignalSource();
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  int fd() const { return fd_.get(); }
  // The next pending signal, if any.
  std::optional<ReceivedSignal> Next();
  // If a signal other than SIGCHLD and SIGUSR1 has arrived, throws Error(kInterrupted) or
  // Error(kTerminated) with the text "stopped by SIGINT" and `suffix`.
  void ThrowIfStopped(const char* suffix);

 private:
  sigset_t before_;
  UniqueFd fd_;
};

}  // namespace muster
