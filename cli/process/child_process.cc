#include "cli/process/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/process.h"
#include "common/base/resource_limits.h"
#include "common/base/signals.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Everything that the child needs between fork and exec. It is prepared before the fork, because
// only async-signal-safe calls are allowed in between.
struct ExecPlan {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int input_fd, output_fd, log_fd, error_fd;
  const int* inherited;
  size_t inherited_count;
  pid_t parent;
  const cpu_set_t* cores;  // null: all of the parent's
  int memory_node;
  bool ignores_stops;
};

// The kernel's MPOL_PREFERRED: memory of this node, or of another if there is none left. It also
// applies to page-locked memory.
constexpr int kPreferred = 1;

// Placement does not change results: if the kernel refuses, the child runs anywhere.
void Place(const ExecPlan& plan) {
  if (plan.cores != nullptr) ::sched_setaffinity(0, sizeof *plan.cores, plan.cores);
  constexpr int kWord = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, 1024 / kWord> nodes{};
  const int node = plan.memory_node;
  if (node < 0 || node >= 1024) return;
  nodes[static_cast<size_t>(node / kWord)] = 1ul << (node % kWord);
  ::syscall(SYS_set_mempolicy, kPreferred, nodes.data(), 1024ul + 1);
}

[[noreturn]] void ExecChild(const ExecPlan& plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(1);  // the parent died before the prctl

  RestoreSignals();
  for (const int signal : kStopSignals) {
    if (plan.ignores_stops) ::signal(signal, SIG_IGN);
  }
  ::dup2(plan.input_fd, 0);
  ::dup2(plan.output_fd, 1);
  ::dup2(plan.log_fd, 2);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  for (size_t i = 0; i < plan.inherited_count; ++i) ::fcntl(plan.inherited[i], F_SETFD, 0);

  Place(plan);
  ::execve(plan.program, plan.arguments, plan.environment);
  int error = errno;
  [[maybe_unused]] ssize_t written = ::write(plan.error_fd, &error, sizeof error);
  ::_exit(127);
}

// Reaps a killed process group. Gives up after a second: a process in uninterruptible sleep ends
// when it wakes.
void ReapGroup(pid_t group) {
  for (int i = 0; i < 1000; ++i) {
    const pid_t ended = ::waitpid(-group, nullptr, WNOHANG);
    if (ended < 0 && errno != EINTR) return;  // no process is left
    if (ended == 0) ::usleep(1000);
  }
}

// This process's children; none if the kernel does not list them.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  std::error_code ignored;
  for (const auto& thread : fs::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream file(thread.path() / "children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

// Null while the process ends or replaces its program.
std::optional<bool> HasVariable(pid_t process, const std::string& variable) {
  std::ifstream file(fmt::format("/proc/{}/environ", process));
  bool any = false;
  for (std::string one; std::getline(file, one, '\0'); any = true) {
    if (one == variable) return true;
  }
  return any ? std::optional(false) : std::nullopt;
}

bool HasEnded(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid != 0;
}

}  // namespace

std::string ProgramInPath(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path place = fs::path(folder.empty() ? "." : folder) / name;
    std::error_code ignored;
    if (::access(place.c_str(), X_OK) == 0 && !fs::is_directory(place, ignored))
      return fs::absolute(place);
  }
  return "";
}

void ReplaceProcess(const std::string& program, const std::vector<std::string>& arguments,
                    const std::string& input_path) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> pointers = Pointers(words);
  const bool has_input = !input_path.empty();
  const UniqueFd input(has_input ? ::open(input_path.c_str(), O_RDONLY | O_CLOEXEC) : -1);
  if (!has_input || ::dup2(input.get(), STDIN_FILENO) == STDIN_FILENO) {
    ::execv(program.c_str(), pointers.data());
  }
  throw Error(ExitCode::kFailure, "cannot execute {}: {}", program, ErrorText(errno));
}

UniqueFd ChildProcess::OpenLog(const ChildOptions& options) {
  if (options.error_fd >= 0) return UniqueFd(::fcntl(options.error_fd, F_DUPFD_CLOEXEC, 3));
  try {
    UniqueFd log = OpenPlainFile(options.log_path, "a log file",
                                 O_WRONLY | O_CREAT | (options.append ? 0 : O_TRUNC) | O_APPEND);
    if (!log.valid()) {
      throw Error(ExitCode::kFailure, "cannot open the log {}: {}", options.log_path,
                  ErrorText(errno));
    }
    return log;
  } catch (const Error& error) {
    if (!options.append) throw;
    log_trouble_ = error.what();
    return UniqueFd(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  }
}

ChildProcess::ChildProcess(const ChildOptions& options) {
  static int marks = 0;
  const UniqueFd log = OpenLog(options);
  const std::string& source = options.input_path;
  UniqueFd input(options.input_fd >= 0
                     ? ::fcntl(options.input_fd, F_DUPFD_CLOEXEC, 3)
                     : ::open(source.empty() ? "/dev/null" : source.c_str(), O_RDONLY | O_CLOEXEC));
  if (!input.valid()) {
    throw StartError(ExitCode::kFailure, "cannot open {}: {}", source, ErrorText(errno));
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw StartError(ExitCode::kFailure, "cannot create a pipe: {}", ErrorText(errno));
  }
  UniqueFd error_read(ends[0]), error_write(ends[1]);

  std::vector<std::string> words = options.arguments;
  words.insert(words.begin(), options.program);
  std::vector<std::string> added = options.environment;
  if (options.takes_all_along) {
    // With the time, because another launcher's pid may be the same, in another container.
    mark_ = fmt::format("MUSTER_CHILD={}-{}-{}", ::getpid(),
                        std::chrono::system_clock::now().time_since_epoch().count(), ++marks);
    added.push_back(mark_);
  }
  std::vector<std::string> variables = EnvironmentWith(added);
  const std::vector<char*> arguments = Pointers(words), environment = Pointers(variables);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : options.cores) CPU_SET(core, &cores);
  ExecPlan plan{.program = options.program.c_str(),
                .arguments = arguments.data(),
                .environment = environment.data(),
                .input_fd = input.get(),
                .output_fd = options.output_fd < 0 ? log.get() : options.output_fd,
                .log_fd = log.get(),
                .error_fd = error_write.get(),
                .inherited = options.inherited_fds.data(),
                .inherited_count = options.inherited_fds.size(),
                .parent = ::getpid(),
                .cores = options.cores.empty() ? nullptr : &cores,
                .memory_node = options.memory_node,
                .ignores_stops = options.ignores_stops};

  // Orphaned grandchildren become children of this process, not of init, so that it can reap them.
  (void)::prctl(PR_SET_CHILD_SUBREAPER, 1);
  pid_ = ::fork();
  if (pid_ == 0) ExecChild(plan);
  if (pid_ < 0) {
    throw StartError(ExitCode::kFailure, "cannot start {}: {}", options.program, ErrorText(errno));
  }
  // The pipe closes at exec; if exec fails, it delivers the error.
  error_write.Reset();
  int error = 0;
  ssize_t got;
  do {
    got = ::read(error_read.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof error)) {
    ::waitpid(pid_, nullptr, 0);
    throw StartError(ExitCode::kFailure, "cannot execute {}: {}", options.program,
                     ErrorText(error));
  }
}

ChildProcess::~ChildProcess() {
  if (!running_) return;
  Signal(SIGKILL);
  // Do not wait forever for a process in uninterruptible sleep. It is reaped after this process
  // ends.
  for (int i = 0; i < 100 && !CheckEnd(); ++i) ::usleep(10000);
}

std::optional<ChildEnd> ChildProcess::CheckEnd() {
  if (!running_) return std::nullopt;
  siginfo_t info{};
  // Do not reap it yet: while the child is a zombie, its pid and its process group stay reserved.
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return std::nullopt;
  }
  ::kill(-pid_, SIGKILL);  // kills the rest of its group
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  running_ = false;
  ReapGroup(pid_);
  KillStrays();
  return ChildEnd{
      .by_signal = info.si_code != CLD_EXITED, .value = info.si_status, .asked = asked_};
}

// A process whose parent has ended is a child of this one, and so are its own children once it is
// killed.
void ChildProcess::KillStrays() const {
  if (mark_.empty()) return;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::set<pid_t> killed;
  int quiet = 0;  // in a row; children of one that ends during the first are seen in the second
  do {
    bool unknown = false;  // what it is, or whether its children come
    for (const pid_t child : Children()) {
      if (killed.contains(child)) continue;
      const std::optional<bool> is_stray = HasVariable(child, mark_);
      unknown |= !is_stray && !HasEnded(child);
      if (!is_stray.value_or(false)) continue;
      ::kill(child, SIGKILL);
      killed.insert(child);
    }
    quiet = killed.empty() && !unknown ? quiet + 1 : 0;
    if (quiet == 2) return;
    ::usleep(1000);
    std::erase_if(killed, [](pid_t child) { return ::waitpid(child, nullptr, WNOHANG) != 0; });
  } while (std::chrono::steady_clock::now() < deadline);  // else they end when they wake
}

bool ChildProcess::stopped() const {
  std::ifstream file(fmt::format("/proc/{}/stat", pid_));
  std::string line;
  std::getline(file, line);
  // "4242 (name) T …"; the name may contain parentheses. 't' (a tracing stop) does not last.
  const size_t end = line.rfind(')');
  return running_ && end != std::string::npos && line.compare(end, 3, ") T") == 0;
}

void ChildProcess::Signal(int signal) {
  if (!running_) return;
  // SIGUSR1 and SIGUSR2 are not requests to end.
  asked_ |= signal != SIGUSR1 && signal != SIGUSR2;
  ::kill(-pid_, signal);
  // A stopped process would not see the signal before it continues.
  if (signal == SIGTERM) ::kill(-pid_, SIGCONT);
}

}  // namespace muster
