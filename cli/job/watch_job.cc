#include "cli/job/watch_job.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "cli/job/job_processes.h"
#include "cli/job/supervisor.h"
#include "cli/text/units.h"
#include "common/base/log.h"
#include "common/base/own_gap.h"
#include "common/events/event_line.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kPollInterval{1};

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Seconds in which this process ran. The time stands still between two looks, so that no gap of
// this process, wherever it was stopped, is ever in it.
class Clock {
 public:
  Clock() { Look(); }
  double Now() const { return now_; }
  double gaps() const { return own_gaps_s_; }  // what is left out, in seconds
  void Look() {
    const auto time = std::chrono::steady_clock::now();
    own_gaps_s_ += Seconds(own_gap_.Look(time));
    now_ = Seconds(time.time_since_epoch()) - own_gaps_s_;
  }

 private:
  OwnGap own_gap_{2 * kPollInterval};
  double own_gaps_s_ = 0, now_ = 0;
};

class Watch {
 public:
  Watch(const JobPlan& plan, SignalSource& signals, Console& console, JobDisplay& display)
      : signals_(signals),
        console_(console),
        processes_(plan, console),
        supervisor_(plan, processes_, display, clock_.Now()) {}

  JobOutcome Run() {
    while (!supervisor_.Over(clock_.Now())) {
      Wait();
      TakeSignals();
      TakeReports();
      TakeEnds();
      supervisor_.Check(clock_.Now());
    }
    TakeReports();
    JobOutcome outcome = supervisor_.Outcome();
    if (outcome.lost_server) outcome.lost_server->at += clock_.gaps();
    return outcome;
  }

 private:
  void Wait() {
    const double wait =
        std::clamp(supervisor_.next_check() - clock_.Now(), 0.0, Seconds(kPollInterval));
    pollfd events[] = {{.fd = signals_.fd(), .events = POLLIN},
                       {.fd = processes_.reports().fd(), .events = POLLIN},
                       {.fd = console_.poll_fd(), .events = POLLOUT}};
    ::poll(events, std::size(events), static_cast<int>(wait * 1000) + 1);
    clock_.Look();
    console_.WritePending();
  }

  void TakeSignals() {
    while (const std::optional<ReceivedSignal> signal = signals_.Next()) {
      if (signal->number == SIGUSR1) {
        supervisor_.AskForCheckpoint();
      } else if (signal->number != SIGCHLD) {  // ends are looked for in every round anyway
        supervisor_.OnSignal(*signal, clock_.Now());
      }
    }
  }

  void TakeReports() {
    LineReader& reports = processes_.reports();
    reports.Read([this](const std::string& line) { TakeReport(line); });
    if (reports.dropped() == dropped_) return;
    dropped_ = reports.dropped();
    WarnOfReport(fmt::format("expected a line of at most {} bytes, got a longer one",
                             FormatCount(int64_t{kMostEventBytes})));
  }

  // The run goes on without a report that cannot be read: what it would have decided, a deadline
  // decides.
  void TakeReport(const std::string& line) {
    events::Event event;
    try {
      event = ParseEventLine(line);
    } catch (const Error& error) {
      return WarnOfReport(error.what());
    }
    supervisor_.OnEvent(event, clock_.Now());
  }

  void WarnOfReport(const std::string& what) {
    if (!unreadable_.Count()) return;
    console_.Print(fmt::format("Warning: a report of the server cannot be read ({} so far): {}",
                               unreadable_.count(), what));
  }

  void TakeEnds() {
    const std::vector<EndedProcess> ended = processes_.TakeEnds();
    if (ended.empty()) return;
    TakeReports();  // what the server wrote before it ended
    supervisor_.OnEnds(ended, clock_.Now());
  }

  SignalSource& signals_;
  Console& console_;
  Clock clock_;
  JobProcesses processes_;
  Supervisor supervisor_;
  size_t dropped_ = 0;   // reports that were too long
  RareLine unreadable_;  // reports
};

}  // namespace

JobOutcome WatchJob(const JobPlan& plan, SignalSource& signals, Console& console,
                    JobDisplay& display) {
  display.ShowStage("Starting the server");
  return Watch(plan, signals, console, display).Run();
}

}  // namespace muster
