#include "launch/gpu/child_task.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

// The child's answer: its lines, a last one that says how it went, and nothing else.
constexpr const char* kDone = "done";
constexpr const char* kError = "error ";

[[noreturn]] void BeChild(int fd, pid_t parent,
                          const std::function<std::vector<std::string>()>& task) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::string answer;
  try {
    for (const std::string& line : task()) answer += line + "\n";
    answer += kDone;
  } catch (const Error& error) {
    answer = fmt::format("{}{} {}", kError, static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {
    answer = fmt::format("{}1 {}", kError, error.what());
  }
  answer += "\n";
  for (size_t at = 0; at < answer.size();) {
    const ssize_t wrote = ::write(fd, answer.data() + at, answer.size() - at);
    if (wrote <= 0) ::_exit(1);
    at += static_cast<size_t>(wrote);
  }
  ::_exit(0);  // without what this process would do at its end
}

// Everything up to the end of the file. False if that does not come in time.
bool ReadToEnd(int fd, Clock::time_point deadline, std::string& text) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd request{.fd = fd, .events = POLLIN};
    if (::poll(&request, 1, static_cast<int>(left) + 1) <= 0) continue;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::vector<std::string> RunInChild(const std::string& who,
                                    const std::function<std::vector<std::string>()>& task,
                                    double deadline_s) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(ExitCode::kFailure, "cannot make a pipe: {}", ErrorText(errno));
  }
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) BeChild(write_end.get(), parent, task);
  if (child < 0) {
    throw Error(ExitCode::kFailure, "cannot start a process for {}: {}", who, ErrorText(errno));
  }
  write_end.Reset();
  std::string text;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(deadline_s));
  const bool in_time = ReadToEnd(read_end.get(), deadline, text);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    throw Error(ExitCode::kDeadline, "{} did not answer within {} s", who, deadline_s);
  }
  std::vector<std::string> lines = LinesOf(text);
  if (!lines.empty() && lines.back() == kDone) {
    lines.pop_back();
    return lines;
  }
  if (text.starts_with(kError)) {
    const std::string rest = text.substr(std::string(kError).size());
    const size_t space = rest.find(' ');
    std::string message = rest.substr(space + 1);
    while (!message.empty() && message.back() == '\n') message.pop_back();
    throw Error(static_cast<ExitCode>(std::stoi(rest)), message);
  }
  throw Error(ExitCode::kFailure, "{} crashed{}", who,
              WIFSIGNALED(status) ? fmt::format(" (signal {})", WTERMSIG(status)) : "");
}

}  // namespace muster
