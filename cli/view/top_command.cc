#include "cli/view/top_command.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "cli/process/signal_source.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/view/run_reader.h"
#include "cli/view/top_view.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/events/event_log.h"

namespace muster {
namespace {

constexpr int kIntervalMs = 1000;

// Reads the metrics, which may be long, only if the server is gone.
RunState StateNow(const std::string& run_dir, const events::Status& status) {
  if (ServerIsAlive(status)) return RunState::kRunning;
  const auto run = ReadRunIfThere(run_dir);
  return run ? run->state : RunState::kKilled;
}

// Throws if there is nothing to show.
events::Status StatusOf(const std::string& run_dir) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(run_dir, ignored)) {
    throw Error(ExitCode::kUsage, "{}: no such directory; expected a run directory", run_dir);
  }
  if (auto status = ReadStatus(run_dir)) return *std::move(status);
  if (!IsRunDir(run_dir)) {
    throw Error(ExitCode::kUsage,
                "{}: expected a run directory, with the {} that the run's server writes; `muster "
                "runs` lists runs",
                run_dir, kEventLog);
  }
  const std::string disk = DiskTrouble(run_dir);
  throw Error(
      ExitCode::kUsage,
      "{}: its {} has no status, which the run's server writes every second: {}; `muster runs {}` "
      "shows what the run has written",
      run_dir, kEventLog,
      disk.empty()
          ? "it has not started, could not write it (see server.log), or is of an earlier version"
          : disk,
      run_dir);
}

std::vector<std::string> Screen(const std::string& run_dir, const events::Status& status,
                                const TopScreen& screen) {
  TopRun run{.name = Shown(std::filesystem::path(run_dir).lexically_normal().string()),
             .state = StateNow(run_dir, status),
             .age_s = StatusAge(status),
             .disk = DiskTrouble(run_dir)};
  const std::string host = HostName();
  for (const events::Status::Rank& rank : status.ranks()) {
    const bool here = run.state == RunState::kRunning && rank.host() == host && rank.pid() > 0;
    const auto bytes = here ? ResidentBytes(rank.pid()) : std::nullopt;
    run.rank_bytes.push_back(bytes ? static_cast<double>(*bytes) : NAN);
  }
  return TopLines(status, run, screen);
}

// The terminal's alternate screen, without echo. The destructor restores the terminal.
class FullScreen {
 public:
  FullScreen() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios quiet = before_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    PrintRaw("\x1b[?1049h\x1b[?25l");
  }
  ~FullScreen() {
    PrintRaw("\x1b[?25h\x1b[?1049l");
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  FullScreen(const FullScreen&) = delete;

  // Overwrites each line, in a single write, to avoid flicker.
  void Draw(const std::vector<std::string>& lines) const {
    std::string text = "\x1b[H";
    for (const std::string& line : lines) {
      if (&line != &lines.front()) text += "\r\n";  // none after the last: the screen would scroll
      text += line;
      text += "\x1b[K";
    }
    PrintRaw(text + "\x1b[J");
  }

 private:
  static void PrintRaw(const std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
      if (n <= 0) return;
      done += static_cast<size_t>(n);
    }
  }
  termios before_{};
};

TopScreen TerminalScreen() {
  winsize size{};
  TopScreen screen{.color = std::getenv("NO_COLOR") == nullptr};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.width = size.ws_col - 1;
    screen.height = size.ws_row;
  }
  return screen;
}

// Waits for the next refresh. Returns true to quit. A resized window is redrawn at the next
// refresh.
bool WaitForStop(const SignalSource& signals) {
  pollfd events[] = {{STDIN_FILENO, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
  if (::poll(events, 2, kIntervalMs) <= 0) return false;
  if (events[1].revents != 0) return true;
  char key = 0;
  return ::read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q';
}

events::Status Follow(const std::string& run_dir) {
  const SignalSource signals;
  const FullScreen terminal;
  events::Status status = StatusOf(run_dir);
  while (!EndIn(status) && ServerIsAlive(status)) {
    std::vector<std::string> lines = Screen(run_dir, status, TerminalScreen());
    lines.emplace_back("q: quit (the run continues)");
    terminal.Draw(lines);
    if (WaitForStop(signals)) break;
    if (auto next = ReadStatus(run_dir)) status = *std::move(next);
  }
  return status;
}

}  // namespace

int PrintStatusJson(const std::string& run_dir) {
  PrintResultAsIs(StatusJson(StatusOf(run_dir)));
  return 0;
}

int WatchRun(const std::string& run_dir, bool once) {
  events::Status status = StatusOf(run_dir);
  const Console console(STDOUT_FILENO);
  TopScreen screen{.width = std::numeric_limits<int>::max() / 2,
                   .height = std::numeric_limits<int>::max() / 2};
  if (console.is_terminal()) {
    screen.width = console.Width();
    screen.color = std::getenv("NO_COLOR") == nullptr;
    if (!once && ::isatty(STDIN_FILENO)) status = Follow(run_dir);
  }
  PrintResultAsIs(Join(Screen(run_dir, status, screen), "\n"));
  return 0;
}

}  // namespace muster
