#include "cli/text/console.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "cli/text/wrapped.h"
#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr size_t kMostPending = 1 << 20;
constexpr const char* kEraseLine = "\r\x1b[K";

bool IsTerminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) && term != nullptr && std::strcmp(term, "dumb") != 0;
}

bool Writable(int fd, int timeout_ms) {
  pollfd request{.fd = fd, .events = POLLOUT};
  return ::poll(&request, 1, timeout_ms) > 0;
}

// Writes the beginning of `text` and returns the number of bytes written: 0 if the descriptor is
// not ready, -1 if it failed for good. After poll, a pipe takes up to PIPE_BUF bytes without
// blocking.
ssize_t WriteSome(int fd, std::string_view text, int timeout_ms) {
  if (!Writable(fd, timeout_ms)) return 0;
  ssize_t wrote = ::write(fd, text.data(), std::min<size_t>(text.size(), 4096));
  if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
  return wrote < 0 ? -1 : wrote;
}

}  // namespace

Console::Console(int fd) : fd_(fd), terminal_(IsTerminal(fd)) {
  if (!terminal_) return;
  // poll guarantees little for terminals, so open a separate, non-blocking file description. The
  // shell shares the inherited one. If opening fails, the inherited one is used.
  reopened_.Reset(::open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                         O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

Console::~Console() {
  ClearLive();
  Flush(1.0);
}

int Console::Width() const {
  winsize size{};
  if (::ioctl(fd_, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 79;
  return std::max(1, size.ws_col - 1);
}

void Console::Print(std::string_view line) {
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find('\n', begin), line.size());
    PrintAsIs(Shown(line.substr(begin, end - begin)));
    begin = end + 1;
  }
}

void Console::PrintRow(const std::string& line) {
  if (!terminal_) return Print(line);
  for (const std::string& part : WrappedRow(line, Width() + 1)) Print(part);
}

void Console::PrintAsIs(std::string_view line) {
  if (live_shown_) Queue(kEraseLine);
  live_shown_ = false;
  if (pending_.size() + line.size() > kMostPending) {
    ++dropped_lines_;
    return;
  }
  if (dropped_lines_ > 0) Queue(fmt::format("({} lines not shown)\n", dropped_lines_));
  dropped_lines_ = 0;
  Queue(std::string(line) + "\n");
  DrawLive();
  WritePending();
}

void Console::SetLive(std::string line) {
  if (!terminal_ || line == live_) return;
  live_ = std::move(line);
  DrawLive();
  WritePending();
}

void Console::DrawLive() {
  live_stale_ = !pending_.empty() && pending_.size() > 4096;  // a slow terminal skips some updates
  if (live_stale_ || (live_.empty() && !live_shown_)) return;
  Queue(kEraseLine + live_);
  live_shown_ = !live_.empty();
}

void Console::Queue(std::string_view text) {
  if (!closed_) pending_ += text;
}

void Console::WritePending() {
  while (!pending_.empty() && !closed_) {
    ssize_t wrote = WriteSome(output_fd(), pending_, 0);
    if (wrote == 0) return;
    if (wrote < 0) {
      error_ = errno;
      if (error_ == ENOSPC || error_ == EDQUOT) return;  // there may be room later
      closed_ = true;
      pending_.clear();
      return;
    }
    error_ = 0;
    pending_.erase(0, static_cast<size_t>(wrote));
    if (pending_.empty() && live_stale_) DrawLive();
  }
}

void Console::Flush(double seconds) {
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  WritePending();
  while (poll_fd() >= 0) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    Writable(poll_fd(), static_cast<int>(left.count()));
    WritePending();
  }
}

std::string Console::trouble() const {
  return error_ != 0 && error_ != EPIPE ? std::strerror(error_) : "";
}

void Console::Finish(double seconds) {
  ClearLive();
  Flush(seconds);
  if (error_ == EPIPE || (!closed_ && !cut())) return;
  throw Error(ExitCode::kFailure, "standard output could not be written: {}",
              error_ != 0 ? std::strerror(error_)
                          : fmt::format("its reader read too little in {:.0f} s", seconds).c_str());
}

int ResultWidth() {
  const Console console(STDOUT_FILENO);
  return console.is_terminal() ? console.Width() + 1 : std::numeric_limits<int>::max();
}

bool PrintResult(std::string_view line) { return PrintResult(std::vector{std::string(line)}); }

bool PrintResult(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += Shown(line, std::string::npos) + "\n";
  return PrintResultAsIs(text);
}

bool PrintRows(const std::vector<std::string>& lines) {
  std::vector<std::string> rows;
  for (const std::string& line : lines) {
    for (std::string& row : WrappedRow(line, ResultWidth())) rows.push_back(std::move(row));
  }
  return PrintResult(rows);
}

bool PrintResultAsIs(std::string_view text) {
  Console console(STDOUT_FILENO);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    console.PrintAsIs(text.substr(0, end));
    console.Finish(60);  // after each line, because the buffer for a slow reader is bounded
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return !console.closed();
}

void PrintError(std::string_view text) {
  const std::string shown = ShownLines(text);
  for (std::string_view rest = shown; !rest.empty();) {
    ssize_t wrote = WriteSome(2, rest, 1000);
    if (wrote <= 0) return;
    rest.remove_prefix(static_cast<size_t>(wrote));
  }
}

}  // namespace muster
