// One child process, which cannot outlive the launcher.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/fd.h"

namespace muster {

// A process could not be started. A moment later it may work: a build replaces the program, or a
// limit on processes, threads, memory or open files is reached.
class StartError : public Error {
 public:
  using Error::Error;
};

// The environment of a process that has no GPU of its own. It would otherwise compute on those of
// other jobs, or hold memory there.
inline constexpr const char* kSeesNoGpu = "CUDA_VISIBLE_DEVICES=";

struct ChildOptions {
  std::string program;                 // path of the executable
  std::vector<std::string> arguments;  // without argv[0]
  std::string log_path;                // receives standard output and standard error
  std::string input_path = {};         // standard input; empty: none
  int input_fd = -1;                   // standard input instead of input_path, unless -1
  int output_fd = -1;                  // receives standard output instead of the log, unless -1
  int error_fd = -1;                   // receives standard error; there is then no log, unless -1
  std::vector<int> inherited_fds;      // keep their numbers; all others except 0-2 are closed
  std::vector<std::string> environment = {};  // NAME=VALUE, added to or replacing this process's
  std::vector<int> cores = {};                // cores to run on; empty: those of this process
  int memory_node = -1;                       // the preferred NUMA node for memory; -1: any
  // When the child ends, its descendants outside its process group, too, are killed: those with the
  // variable that it gets in its environment.
  bool takes_all_along = false;
  // The signals that stop a session do not end it, unless it asks for them: it ends with its input.
  bool ignores_stops = false;
  // Append to the log. If the log cannot be opened, the child runs without one: a failing disk must
  // not stop a run.
  bool append = false;
};

// The absolute path of a program, as a shell finds it in PATH, or "".
std::string ProgramInPath(const std::string& name);

// Replaces this process with a program. `input_path` is its standard input; empty: this process's.
// Throws Error(kFailure).
[[noreturn]] void ReplaceProcess(const std::string& program,
                                 const std::vector<std::string>& arguments,
                                 const std::string& input_path = "");

// How a child ended.
struct ChildEnd {
  bool by_signal = false;
  int value = 0;       // the signal, or the exit code
  bool asked = false;  // the launcher had sent it a signal, so the child is not to blame
};

// Owned by the launcher's main thread, which must also create it: the kernel kills the child when
// the thread that forked it ends. The child leads its own process group, so that a terminal's
// Ctrl-C reaches only the launcher, and so that its own children can be killed with it. The
// destructor kills and reaps a running child.
class ChildProcess {
 public:
  // Throws Error(kFailure) if the log cannot be opened, StartError if the program cannot be
  // executed.
  explicit ChildProcess(const ChildOptions& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Why the child has no log; "" if it has one.
  const std::string& log_trouble() const { return log_trouble_; }
  bool running() const { return running_; }
  // Whether it is stopped by SIGSTOP, SIGTSTP or a debugger.
  bool stopped() const;

  // If the child has ended, kills and reaps its process group. Returns how it ended, only once.
  std::optional<ChildEnd> CheckEnd();

  // Sends `signal` to the child and its process group; with SIGTERM, also continues stopped
  // processes. Does nothing if the child has ended, because its number may belong to another
  // process.
  void Signal(int signal);

 private:
  UniqueFd OpenLog(const ChildOptions& options);
  void KillStrays() const;

  std::string log_trouble_;
  std::string mark_;  // NAME=VALUE, of this child alone; empty: its strays live on
  pid_t pid_;
  bool running_ = true;
  bool asked_ = false;
};

}  // namespace muster
