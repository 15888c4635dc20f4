#include "cli/job/watch_job.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <vector>

#include "cli/job/job_processes.h"
#include "cli/job/program_output.h"
#include "cli/job/supervisor.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/config/config.h"
#include "common/events/event_line.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kPollInterval{1};

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// A clock that counts only the time in which this process was not suspended. It advances only in
// Look(), so no suspension is ever included.
class WatchClock {
 public:
  WatchClock() { Look(); }
  double Now() const { return now_; }
  double gaps() const { return suspended_s_; }  // the excluded time, in seconds
  void Look() {
    const auto time = std::chrono::steady_clock::now();
    suspended_s_ += Seconds(suspensions_.Look(time));
    now_ = Seconds(time.time_since_epoch()) - suspended_s_;
  }

 private:
  SuspensionDetector suspensions_{2 * kPollInterval};
  double suspended_s_ = 0, now_ = 0;
};

class Watch {
 public:
  Watch(const JobPlan& plan, SignalSource& signals, Console& console, JobDisplay& display)
      : plan_(plan),
        signals_(signals),
        console_(console),
        output_(HasProgram(*plan.config) ? plan.dir->WorkerLogPath(0) : ""),
        processes_(plan, console),
        supervisor_(plan, processes_, display, clock_.Now()) {}

  JobOutcome Run() {
    while (!supervisor_.Over(clock_.Now())) {
      Wait();
      TakeSignals();
      TakeReports();
      output_.Show(console_);
      TakeEnds();
      supervisor_.Check(clock_.Now());
    }
    TakeReports();
    output_.Show(console_, /*ended=*/true);
    if (!plan_.config->run().trace_file().empty()) processes_.AwaitTraces();
    JobOutcome outcome = supervisor_.Outcome();
    outcome.lost_hosts = processes_.LostHosts();
    if (outcome.lost_server) outcome.lost_server->at += clock_.gaps();
    return outcome;
  }

 private:
  void Wait() {
    const double wait =
        std::clamp(supervisor_.next_check() - clock_.Now(), 0.0, Seconds(kPollInterval));
    std::vector<pollfd> events{{.fd = signals_.fd(), .events = POLLIN},
                               {.fd = processes_.reports().fd(), .events = POLLIN},
                               {.fd = console_.poll_fd(), .events = POLLOUT}};
    for (const int fd : processes_.fds()) events.push_back({.fd = fd, .events = POLLIN});
    ::poll(events.data(), events.size(), static_cast<int>(wait * 1000) + 1);
    clock_.Look();
    console_.WritePending();
  }

  void TakeSignals() {
    while (const std::optional<ReceivedSignal> signal = signals_.Next()) {
      if (signal->number == SIGUSR1 && !plan_.in_slurm) {
        supervisor_.AskForCheckpoint();
      } else if (signal->number != SIGCHLD) {  // every iteration checks for ended processes anyway
        supervisor_.OnSignal(*signal, clock_.Now());
      }
    }
  }

  void TakeReports() {
    processes_.reports().Read([this](const std::string& line) { TakeReport(line); });
  }

  // An unreadable event does not end the run. If it was important, a deadline will expire.
  void TakeReport(const std::string& line) {
    events::Event event;
    try {
      event = ParseEventLine(line);
    } catch (const Error& error) {
      if (unreadable_.Count()) {
        console_.Print(fmt::format("Warning: cannot read an event of the server ({} so far): {}",
                                   unreadable_.count(), error.what()));
      }
      return;
    }
    supervisor_.OnEvent(event, clock_.Now());
  }

  void TakeEnds() {
    const std::vector<EndedProcess> ended = processes_.TakeEnds();
    if (ended.empty()) return;
    TakeReports();  // the events that the server wrote before it ended
    supervisor_.OnEnds(ended, clock_.Now());
  }

  const JobPlan& plan_;
  SignalSource& signals_;
  Console& console_;
  WatchClock clock_;
  ProgramOutput output_;
  JobProcesses processes_;
  Supervisor supervisor_;
  RareLine unreadable_;  // counts unreadable events
};

}  // namespace

JobOutcome WatchJob(const JobPlan& plan, SignalSource& signals, Console& console,
                    JobDisplay& display) {
  display.ShowStage("Starting the server");
  return Watch(plan, signals, console, display).Run();
}

}  // namespace muster
