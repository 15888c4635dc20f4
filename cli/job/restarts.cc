#include "cli/job/restarts.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <utility>

#include "cli/job/run_dir.h"
#include "cli/job/workers_by_hand.h"
#include "cli/text/units.h"
#include "cli/view/run_reader.h"
#include "common/base/error.h"
#include "common/base/signals.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/run_mark.h"

namespace muster {
namespace {

// Between attempts to start the job again: the first pause, which doubles, the longest, and all of
// them together.
constexpr double kFirstWaitSeconds = 1, kLongestWaitSeconds = 30, kMostWaitsSeconds = 300;

// A server has recorded the earlier losses in metrics.jsonl, unless the run starts over.
void ForgetToldLosses(JobPlan& plan, const JobDisplay& display, int64_t told_before) {
  if (plan.resume && display.restarts_told() > told_before) plan.losses.clear();
}

// The signal that stops the job within this time, or 0.
int StopWithin(double seconds, const JobPlan& plan, SignalSource& signals) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    while (const std::optional<ReceivedSignal> signal = signals.Next()) {
      const bool stops = signal->number != SIGUSR1 || plan.in_slurm;
      if (signal->number != SIGCHLD && stops) return signal->number;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return 0;
    pollfd request{.fd = signals.fd(), .events = POLLIN};
    (void)::poll(&request, 1, static_cast<int>(left.count()));
  }
}

// Watches the next job after the one that ended with `lost`. If a process cannot be started, it
// tries again, because the cause may pass (StartError).
JobOutcome WatchNextJob(const JobOutcome& lost, JobPlan& plan, SignalSource& signals,
                        Console& console, JobDisplay& display) {
  double pause = kFirstWaitSeconds, waited = 0;
  for (;;) {
    plan.token = NewToken();  // keeps processes of the old job out
    display.BeginAgain();
    const int64_t told = display.restarts_told();
    JobOutcome end = lost;
    try {
      if (!plan.resume) plan.dir->ForgetAttempt();
      JobOutcome outcome = WatchJob(plan, signals, console, display);
      if (!outcome.could_not_start) return outcome;
      end.not_restarted = outcome.failure->what;
    } catch (const StartError& error) {
      end.not_restarted = error.what();
    } catch (const Error& error) {
      waited = kMostWaitsSeconds;
      end.not_restarted = error.what();
    }
    ForgetToldLosses(plan, display, told);
    if (waited >= kMostWaitsSeconds) return end;
    console.Print(fmt::format("Warning: cannot restart: {}; trying again in {}", end.not_restarted,
                              FormatDuration(pause)));
    if (const int signal = StopWithin(pause, plan, signals)) {
      return {.exit_code = StopCode(signal),
              .stop_signal = signal,
              .summary = lost.summary,
              .ends = lost.ends,
              .changes = lost.changes};
    }
    waited += pause;
    pause = std::min(2 * pause, kLongestWaitSeconds);
  }
}

}  // namespace

std::string Restarts::WhyNot() {
  const uint32_t most = config_.run().max_restarts();
  if (most == 0) return "run.max_restarts is 0";
  // The server resumes from the same one.
  const ChosenCheckpoint chosen = ChooseCheckpoint(dir_.path());
  const int64_t newest = chosen.reader ? chosen.name.step : -1;
  if (newest < 0 && config_.checkpoint().keep_last() == 0)
    return "there is no checkpoint to resume from, because checkpoint.keep_last is 0";
  // The first checkpoint of a run also writes its id.
  had_checkpoint_ = had_checkpoint_ || newest >= 0 || !RunIdIn(dir_.path()).empty();
  if (newest < 0 && !chosen.damaged.empty()) {
    return fmt::format("its checkpoints are damaged; the newest: {}", chosen.damaged.front().why);
  }
  if (newest < 0 && (had_checkpoint_ || !std::filesystem::is_directory(dir_.path()))) {
    return fmt::format("its checkpoints are gone from {}", CheckpointsFolder(dir_.path()));
  }
  in_vain_ = count_ > 0 && newest <= newest_ ? in_vain_ + 1 : 0;
  newest_ = newest;
  if (in_vain_ >= kMostInVain) {
    if (newest < 0)
      return fmt::format("the last {} starts did not reach a first checkpoint", in_vain_);
    return fmt::format(
        "the last {} starts did not get from step {} to another checkpoint; if the cause is "
        "external, save checkpoints more often (checkpoint.every_steps or every_minutes)",
        in_vain_, FormatCount(newest));
  }
  if (count_ >= most) {
    return fmt::format("it has already been restarted {} (run.max_restarts)",
                       Plural(int64_t{count_}, "time"));
  }
  ++count_;
  return "";
}

JobOutcome WatchJobThroughLosses(JobPlan& plan, SignalSource& signals, Console& console,
                                 JobDisplay& display) {
  const config::Config& config = *plan.config;
  Restarts restarts(config, *plan.dir, plan.resume);
  std::optional<JobOutcome> lost;  // of the job before
  for (;;) {
    const int64_t told = display.restarts_told();
    JobOutcome outcome = lost ? WatchNextJob(*lost, plan, signals, console, display)
                              : WatchJob(plan, signals, console, display);
    // If the workers are started by hand, so is their next server.
    if (!outcome.lost_server || plan.invite_workers || !outcome.not_restarted.empty()) {
      return outcome;
    }
    const size_t hosts = plan.hosts == nullptr ? 0 : plan.hosts->hosts.size();
    const bool none_left = hosts > 0 && outcome.lost_hosts.size() == hosts;
    outcome.not_restarted = none_left ? "every host is lost" : restarts.WhyNot();
    if (!outcome.not_restarted.empty()) return outcome;
    console.Print("Warning: " + outcome.failure->what);
    const std::string which = fmt::format("(restart {} of at most {})", restarts.count(),
                                          FormatCount(int64_t{config.run().max_restarts()}));
    plan.resume = restarts.from_step() >= 0;
    if (plan.resume) {
      console.Print(
          fmt::format("Restarting from step {} {}", FormatCount(restarts.from_step()), which));
      ForgetToldLosses(plan, display, told);
    } else {
      console.Print(fmt::format(
          "Restarting from the beginning, because there is no checkpoint yet {}", which));
    }
    plan.losses.push_back(*outcome.lost_server);
    plan.changes = outcome.changes;
    plan.ends = outcome.ends;
    plan.lost_hosts = outcome.lost_hosts;
    lost = std::move(outcome);
  }
}

std::optional<ServerLoss> LostBefore(const std::string& run_dir) {
  try {
    const auto status = ReadStatus(run_dir);
    if (!status || status->state().empty() || EndIn(*status)) return std::nullopt;
    if (!IsGone(ReadRun(run_dir).state)) return std::nullopt;
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    // The time of the last status is the best estimate; the clock may have been set since then.
    ServerLoss loss{.cause = "ended without a word",
                    .at = now.count() - std::max(0.0, StatusAge(*status))};
    if (status->progress().at().has_step()) loss.step = status->progress().at().step();
    return loss;
  } catch (const Error&) {  // a file that is no run's
    return std::nullopt;
  }
}

}  // namespace muster
