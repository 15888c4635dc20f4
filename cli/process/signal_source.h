// Signals as readable events: no handler, nothing asynchronous.
#pragma once

#include <csignal>
#include <optional>

#include "common/base/fd.h"

namespace muster {

struct ReceivedSignal {
  int number;
  bool from_terminal;  // a key was pressed, or the terminal went away; else a process sent it
};

// Blocks SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD for this process and delivers them through a
// descriptor, for as long as the object lives. A SIGHUP that was ignored from the start (nohup)
// stays ignored. SIGPIPE is ignored for good: a closed pipe is an error of write. Made once, by
// the main thread, before any other thread exists. Children must unblock what they inherit.
class SignalSource {
 public:
  SignalSource();
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  int fd() const { return fd_.get(); }
  // The next signal that has arrived, without waiting.
  std::optional<ReceivedSignal> Next();
  // Throws Error(kInterrupted) or Error(kTerminated), "stopped by SIGINT" and `suffix`, if one has
  // arrived that ends this process: any but SIGCHLD and SIGUSR1.
  void ThrowIfStopped(const char* suffix);

 private:
  sigset_t before_;
  UniqueFd fd_;
};

}  // namespace muster
