// One child process: started so that it cannot outlive the launcher, watched, stopped, reaped.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace muster {

struct ChildOptions {
  std::string program;                 // path of the executable
  std::vector<std::string> arguments;  // without argv[0]
  std::string log_path;                // receives standard output and standard error
  int output_fd = -1;                  // receives standard output in place of the log, unless -1
  std::vector<int> inherited_fds;      // under the same numbers; every other one but 0-2 is closed
  std::vector<std::string> environment = {};  // NAME=VALUE, beside or instead of this process's
  std::vector<int> cores = {};                // to run on; empty: those of this process
  int memory_node = -1;                       // whose memory it is to prefer; -1: any
  // To what the log holds. Where it cannot be opened any more the child says nothing: a disk that
  // fails is no reason not to go on.
  bool append = false;
};

// How a child ended.
struct ChildEnd {
  bool by_signal = false;
  int value = 0;  // the signal, or the exit code
  // Whether the launcher had sent it a signal before: then the end says nothing about the child.
  bool asked = false;
};

// Owned by the launcher's main thread, which must also be the one that made it: the kernel kills
// the child when the thread that forked it ends. The child leads a process group of its own, so
// that a terminal's Ctrl-C reaches only the launcher, and so that what it may have forked goes
// with it. The destructor kills and reaps a child that still runs.
class ChildProcess {
 public:
  // Throws Error(kFailure) where the log cannot be opened or the program cannot be executed.
  explicit ChildProcess(const ChildOptions& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Why the child has no log; "" if it has.
  const std::string& log_trouble() const { return log_trouble_; }
  bool running() const { return running_; }
  // By SIGSTOP, SIGTSTP or a debugger, so that it neither works nor answers until somebody
  // continues it.
  bool stopped() const;

  // Reaps the child, and what it had forked, if it has ended; its end is returned once.
  std::optional<ChildEnd> CheckEnd();

  // Sends `signal` to the child and everything in its group; with SIGTERM, continues what is
  // stopped. Nothing happens once it has ended:
  // the number may by then belong to someone else.
  void Signal(int signal);

 private:
  // Reaps what the ended child had forked and is being killed.
  void AwaitGroup();

  std::string log_trouble_;
  pid_t pid_;
  bool running_ = true;
  bool asked_ = false;
};

}  // namespace muster
