#include "cli/gpu/driver_child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/signals.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr size_t kCallBytes = 128;
constexpr int kSocket = 3;  // in the child
// A signal that arrives while a driver answers as usual is left to the caller, who handles it with
// words of its own.
constexpr double kUsualSeconds = 1;

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void WriteCall(char* page, const std::string& call) {
  std::strncpy(page, call.c_str(), kCallBytes - 1);
}

bool SendAll(int socket, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t more = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (more <= 0 && errno != EINTR) return false;
    sent += static_cast<size_t>(std::max<ssize_t>(more, 0));
  }
  return true;
}

// An answer begins with its length.
std::string Framed(const std::string& answer) {
  const uint64_t size = answer.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + answer;
}

// Leads a process group of its own, so that a terminal's Ctrl-C reaches only the parent. Skips the
// exit handlers of the parent.
[[noreturn]] void ServeDriver(int socket, pid_t parent, const DriverChild::Answer& answer,
                              char* call) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::setpgid(0, 0);
  RestoreSignals();
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < kSocket; ++fd) ::dup2(nowhere, fd);
  ::dup2(socket, kSocket);
  ::close_range(kSocket + 1, ~0U, 0);
  const DriverChild::Enter enter = [call](const std::string& text) { WriteCall(call, text); };
  try {
    for (char question = 0; ::recv(kSocket, &question, 1, 0) == 1;) {
      if (!SendAll(kSocket, Framed(answer(question, enter)))) break;
    }
  } catch (...) {
    ::_exit(1);
  }
  ::_exit(0);
}

// Readable while one of the signals that end a command is pending, because this process blocks it.
UniqueFd BlockedSignals() {
  sigset_t blocked, watched;
  sigemptyset(&watched);
  ::sigprocmask(SIG_BLOCK, nullptr, &blocked);
  for (const int signal : kStopSignals) {
    if (sigismember(&blocked, signal) == 1) sigaddset(&watched, signal);
  }
  return UniqueFd(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
}

int PendingSignal() {
  sigset_t pending;
  ::sigpending(&pending);
  return *std::ranges::find_if(kStopSignals,
                               [&](int signal) { return sigismember(&pending, signal) == 1; });
}

char* SharedPage() {
  void* const page =
      ::mmap(nullptr, kCallBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) return static_cast<char*>(page);
  throw Error(ExitCode::kFailure, "cannot map memory to ask the NVIDIA driver: {}",
              ErrorText(errno));
}

}  // namespace

void DriverChild::Unmap::operator()(char* page) const { ::munmap(page, kCallBytes); }

DriverChild::DriverChild(const std::string& first_call, Answer answer, double patience_s)
    : first_call_(first_call),
      answer_(std::move(answer)),
      patience_s_(patience_s),
      call_(SharedPage()) {}

void DriverChild::Start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(ExitCode::kFailure, "cannot make a socket to ask the NVIDIA driver: {}",
                ErrorText(errno));
  }
  socket_.Reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  WriteCall(call_.get(), first_call_);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) ServeDriver(theirs.get(), parent, answer_, call_.get());
  if (child < 0) {
    throw Error(ExitCode::kFailure, "cannot start a process to ask the NVIDIA driver: {}",
                ErrorText(errno));
  }
  pid_ = child;
}

std::string DriverChild::call() const {
  return OneLine(std::string(call_.get(), ::strnlen(call_.get(), kCallBytes)), kCallBytes);
}

std::optional<std::string> DriverChild::Ask(char question) {
  if (pid_ == 0) Start();
  const double until = SecondsNow() + patience_s_;
  std::string bytes;
  uint64_t size = 0;
  (void)SendAll(socket_.get(), std::string(1, question));
  while (bytes.size() < sizeof size || bytes.size() < sizeof size + size) {
    Await(until);
    std::array<char, 1 << 14> buffer;
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) {
      End();
      return std::nullopt;
    }
    bytes.append(buffer.data(), static_cast<size_t>(got));
    if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  }
  return bytes.substr(sizeof size);
}

void DriverChild::Await(double until) {
  const UniqueFd signals = BlockedSignals();
  const double usual = SecondsNow() + kUsualSeconds;
  for (double now = SecondsNow(); now < until; now = SecondsNow()) {
    const bool watches = now >= usual;
    pollfd events[2] = {{.fd = socket_.get(), .events = POLLIN},
                        {.fd = signals.get(), .events = POLLIN}};
    const double end = watches ? until : std::min(usual, until);
    (void)::poll(events, watches ? 2 : 1, static_cast<int>((end - now) * 1000) + 1);
    if (events[0].revents != 0) return;
    if (!watches || events[1].revents == 0) continue;
    const int signal = PendingSignal();
    End();
    throw Error(StopCode(signal), "stopped by {} while the NVIDIA driver did not answer ({})",
                SignalName(signal), call());
  }
  End();
  throw Error(ExitCode::kDeadline,
              "the NVIDIA driver hangs: expected an answer of {} within {} s, got none. See dmesg "
              "for its errors (NVRM, Xid); nvidia-smi may hang, too, and often only a restart of "
              "the machine helps. Until then --devices cpu trains without GPUs",
              call(), patience_s_);
}

void DriverChild::End() {
  if (pid_ == 0) return;
  socket_.Reset();
  ::kill(pid_, SIGKILL);
  for (int i = 0; i < 1000 && ::waitpid(pid_, nullptr, WNOHANG) == 0; ++i) ::usleep(1000);
  pid_ = 0;
}

}  // namespace muster
