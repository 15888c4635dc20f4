#include "cli/job/supervisor.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "cli/text/units.h"
#include "common/config/config.h"
#include "common/events/count_change.h"

namespace muster {
namespace {

constexpr double kStartMargin = 15;    // added to start_s, in case the server fails to enforce it
constexpr double kFinishSeconds = 10;  // for processes to end after the run is complete
constexpr double kSaveSeconds = 300;   // for the server to write the weights
constexpr double kEarlyExitSeconds = 10;  // for the server to explain the end of a worker
// Lets workers that wait for the server give up first, so that they report what they waited for.
constexpr double kSilenceMargin = 3;

bool EndedWell(const EndedProcess& process) {
  return !process.end.by_signal && process.end.value == 0;
}

}  // namespace

Supervisor::Supervisor(const JobPlan& plan, Members& members, JobDisplay& display, double now)
    : plan_(plan),
      members_(members),
      display_(display),
      deadline_(now + plan.config->deadlines().start_s()),
      changes_(plan.changes),
      replacements_(plan, members, [this](const std::string& what) { Warn(what); }) {}

// ---------------------------------------------------------------------------------- watching

void Supervisor::StartWorkers(const std::string& endpoint, double now) {
  const bool by_hand = static_cast<bool>(plan_.invite_workers);
  display_.ShowStage((by_hand ? "Waiting for " : "Starting ") + Plural(plan_.workers(), "worker"));
  phase_ = Phase::kWorkersJoining;
  // If the workers are started by hand, the server reports who is missing and when it gives up.
  deadline_ = now + plan_.config->deadlines().start_s() + kStartMargin;
  OrFail([&] { members_.StartWorkers(endpoint); }, now);
}

void Supervisor::OnEvent(const events::Event& event, double now) {
  server_.heard_at = now;
  switch (event.kind_case()) {
    case events::Event::kListening: {
      const std::string& endpoint = event.listening().endpoint();
      if (phase_ != Phase::kServerStarting) break;
      StartWorkers(endpoint.empty() ? plan_.endpoint : endpoint, now);
      break;
    }
    case events::Event::kWaiting:
      server_.missing.assign(event.waiting().missing().begin(), event.waiting().missing().end());
      break;
    case events::Event::kStarted:
      if (phase_ == Phase::kWorkersJoining) phase_ = Phase::kRunning;
      replacements_.OnStarted(event.started());
      break;
    case events::Event::kProgress:
      replacements_.OnProgress();
      break;
    case events::Event::kSaving:
      OnSaving(event.saving(), now);
      break;
    case events::Event::kSummary:
      server_.saved_by.reset();
      OnSummary(event.summary(), now);
      break;
    case events::Event::kMemberChange:
      CountChange(event.member_change(), changes_);
      replacements_.OnChange(event.member_change(), now);
      TakeLostExits(now);
      break;
    case events::Event::kFailure:
      if (server_.failure || at_failure_.observed.ServerIsStuck()) break;
      server_.failure = FailureOf(event.failure());
      FailWithOthers(now);
      break;
    default:
      break;
  }
  if (phase_ != Phase::kStopping || IsToldAtTheEnd(event)) display_.OnEvent(event);
}

// After a signal, the server's events still describe the progress of the run. After a failure, they
// are only consequences.
bool Supervisor::IsToldAtTheEnd(const events::Event& event) const {
  if (stop_signal_ == 0) return false;
  switch (event.kind_case()) {
    case events::Event::kMemberChange:
    case events::Event::kSharesChanged:
    case events::Event::kSkippedStep:
    case events::Event::kLog:
    case events::Event::kEvaluation:
    case events::Event::kWarning:
      return true;
    default:
      return false;
  }
}

// The server handles SIGUSR1 only after it has reported its endpoint.
void Supervisor::AskForCheckpoint() {
  if (ServerReports()) members_.Signal(0, SIGUSR1);
}

// Saving state and weights is worth a delay, as long as the server reports that it is writing them.
void Supervisor::OnSaving(const events::Saving& saving, double now) {
  // The server itself limits how long it waits for programs.
  if (!server_.saved_by || saving.waits_for_programs()) server_.saved_by = now + kSaveSeconds;
  if (early_exit_by_ != kNever) early_exit_by_ = now + kEarlyExitSeconds;
  if (phase_ != Phase::kStopping) return;
  stages_.WaitForServer(now);
  display_.ShowStage(fmt::format("Stopping: writing the state of step {}{}",
                                 FormatCount(saving.step()),
                                 stop_signal_ == SIGINT ? " (Ctrl-C again kills at once)" : ""));
}

void Supervisor::OnSummary(const events::Summary& summary, double now) {
  server_.summary = summary;
  const bool joined = phase_ == Phase::kWorkersJoining || phase_ == Phase::kRunning;
  if (!joined || summary.end() != events::Summary::COMPLETED) return;
  phase_ = Phase::kFinishing;
  deadline_ = now + kFinishSeconds;
  early_exit_by_ = kNever;
  replacements_.EndOutsiders();
}

void Supervisor::OnEnds(const std::vector<EndedProcess>& ended, double now) {
  bool failed = false;
  for (const EndedProcess& process : ended) {
    if (process.rank == kSrunRank) {
      OnSrunEnd(process, now);
      continue;
    }
    if (!process.not_started.empty()) {
      OrFail(
          [&] {
            if (replacements_.TryLater(process, now)) return;
            throw StartError(ExitCode::kFailure, "{}", process.not_started);
          },
          now);
      continue;
    }
    if (phase_ == Phase::kFinishing && process.end.asked) continue;
    if (server_.saved_by || phase_ == Phase::kFinishing) {
      if (replacements_.IsOutside(process.rank)) continue;
    }
    if (GoesOnWithout(process, now) || IsNoLoss(process, now)) continue;
    ended_.push_back(process);
    if (!EndedWell(process)) {
      failed = true;
    } else if (phase_ >= Phase::kFinishing) {
      continue;
    } else if (process.rank < 0) {
      Fail({{.code = ExitCode::kProcessDied, .what = DescribeEnd(process, display_.AtStep())},
            members_.LogPath(-1)},
           now);
    } else if (early_exit_by_ == kNever) {
      early_exit_by_ = now + kEarlyExitSeconds;
    }
  }
  if (failed) FailWithOthers(now);
  // The workers can do nothing without a server, and the user waits for the next one.
  if (!server_.failure && SignalOfServer(ended)) {
    stages_.BeginWithoutServer(now, static_cast<bool>(plan_.srun));
  }
}

// srun ends when all workers have ended, with the exit code of the one that fared worst. The server
// knows better how each ended and whether that matters, so it gets time to report.
void Supervisor::OnSrunEnd(const EndedProcess& process, double now) {
  if (phase_ >= Phase::kFinishing) return;
  if (phase_ == Phase::kWorkersJoining && !EndedWell(process)) {
    return Fail({{.code = CodeOf(process.end),
                  .what = DescribeEnd(process, "", members_.LastWords(kSrunRank))},
                 members_.LogPath(kSrunRank)},
                now);
  }
  ended_.push_back(process);
  if (early_exit_by_ == kNever) early_exit_by_ = now + kEarlyExitSeconds;
}

// Returns false if the server has ended, is saving, or is about to end, because the workers then
// end with it.
bool Supervisor::GoesOnWithout(const EndedProcess& process, double now) {
  if (process.rank < 0 || !ServerReports() || !members_.running(0) || server_.saved_by)
    return false;
  if (ServerMayHang(now) && replacements_.MayEnd(process, now)) {
    held_.push_back(process);
    return true;
  }
  auto answer = Replacements::Answer::kGoesOn;
  OrFail([&] { answer = replacements_.OnEnd(process, now); }, now);
  if (answer == Replacements::Answer::kFatal) return false;
  if (answer == Replacements::Answer::kGoesOn) {
    const bool is_failure = !EndedWell(process) || !replacements_.HasLeft(process);
    // The loss of a whole host has been said once.
    const bool is_told = process.end.asked || !process.lost_host.empty();
    // The codes of a program are its own.
    const std::string words =
        HasProgram(*plan_.config) ? members_.LastWords(process.rank) : std::string();
    if (is_failure && !is_told) Warn(DescribeEnd(process, "", words));
    return true;
  }
  const std::string how = DescribeEnd(process, display_.AtStep(), members_.LastWords(process.rank));
  Fail({replacements_.TooMany(process, how), members_.LogPath(process.rank)}, now);
  return true;
}

// After the last step, the run needs nothing more from its workers. A worker may then be killed, or
// resume from a stop and find that the others are gone. A crash is still reported.
bool Supervisor::IsNoLoss(const EndedProcess& process, double now) {
  const bool is_over =
      phase_ == Phase::kFinishing || (phase_ == Phase::kRunning && server_.saved_by);
  if (!is_over || process.rank < 0 || !replacements_.MayEnd(process, now)) return false;
  const ChildEnd& end = process.end;
  const bool gave_up = phase_ == Phase::kFinishing && !end.by_signal &&
                       (end.value == static_cast<int>(ExitCode::kDeadline) ||
                        end.value == static_cast<int>(ExitCode::kPeerFailed));
  if (!gave_up && !(end.by_signal && end.value == SIGKILL)) return false;
  Warn(fmt::format("{} {} after its last step", Name(process.rank, process.pid),
                   gave_up ? fmt::format("lost the server (exit code {})", end.value)
                           : "was killed by SIGKILL"));
  return true;
}

// Treats workers that ended with exit code 0, but that the server lost, like other lost workers.
void Supervisor::TakeLostExits(double now) {
  if (early_exit_by_ == kNever || phase_ == Phase::kStopping) return;
  for (const EndedProcess& process : std::exchange(ended_, {})) {
    const bool is_lost = replacements_.IsLost(process);
    if (is_lost && GoesOnWithout(process, now)) continue;
    ended_.push_back(process);
    if (!is_lost) continue;
    Fail({{.code = ExitCode::kProcessDied, .what = DescribeEnd(process, display_.AtStep())},
          members_.LogPath(process.rank)},
         now);
  }
  if (ended_.empty()) early_exit_by_ = kNever;
}

void Supervisor::Check(double now) {
  if (!held_.empty() && !ServerMayHang(now)) OnEnds(std::exchange(held_, {}), now);
  replacements_.Check(now);
  OrFail([&] { replacements_.StartAgain(ServerReports() && !server_.saved_by, now); }, now);
  if (phase_ != Phase::kStopping && now >= early_exit_by_) {
    for (const EndedProcess& process : ended_) replacements_.Lose(process);
    TakeLostExits(now);
  }
  CheckServerSilence(now);
  CheckPhaseDeadline(now);
  if (phase_ == Phase::kStopping) ContinueStopping(now);
}

void Supervisor::OrFail(const std::function<void()>& start, double now) {
  try {
    start();
  } catch (const Error& error) {
    Fail({.failure = {.code = error.code(), .what = error.what()},
          .could_not_start = dynamic_cast<const StartError*>(&error) != nullptr},
         now);
  }
}

void Supervisor::CheckPhaseDeadline(double now) {
  if (phase_ == Phase::kRunning && server_.saved_by && now >= *server_.saved_by) {
    return Fail({{.code = ExitCode::kDeadline,
                  .what = fmt::format("{} did not write the weights within {}",
                                      Name(-1, members_.pid(0)), FormatDuration(kSaveSeconds))},
                 members_.LogPath(-1)},
                now);
  }
  if (phase_ == Phase::kStopping || phase_ == Phase::kRunning || now < deadline_) return;
  if (phase_ == Phase::kServerStarting) {
    return Fail({{.code = ExitCode::kDeadline,
                  .what = fmt::format("{} did not start to listen within {} (deadlines.start_s)",
                                      Name(-1, members_.pid(0)),
                                      FormatDuration(plan_.config->deadlines().start_s()))},
                 members_.LogPath(-1)},
                now);
  }
  if (phase_ == Phase::kWorkersJoining) {
    return Fail(
        {{.code = ExitCode::kDeadline,
          .what = fmt::format("the job did not start within {} (deadlines.start_s); missing: {}",
                              FormatDuration(plan_.config->deadlines().start_s()),
                              RankList(server_.missing))},
         members_.LogPath(plan_.srun ? kSrunRank : kServerRank)},
        now);
  }
  KillLeftovers(now);
}

// The run and its files are complete, so a process that does not end is not a failure.
void Supervisor::KillLeftovers(double now) {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (!members_.running(i)) continue;
    Warn(fmt::format("the run is complete, but {} did not end within {}{}: killing it",
                     Name(members_.rank(i), members_.pid(i)), FormatDuration(kFinishSeconds),
                     members_.stopped(i) ? " (it is stopped: SIGSTOP?)" : ""));
    members_.Signal(i, SIGKILL);
  }
  deadline_ = kNever;
  given_up_at_ = now + kFinishSeconds;
}

void Supervisor::Warn(const std::string& message) {
  events::Event event;
  event.mutable_warning()->set_message(message);
  display_.OnEvent(event);
}

bool Supervisor::ServerReports() const {
  return phase_ == Phase::kWorkersJoining || phase_ == Phase::kRunning;
}

// Without this check, the launcher would wait forever for a job whose processes are all stopped.
void Supervisor::CheckServerSilence(double now) {
  if (!ServerReports() ||
      now - server_.heard_at <= plan_.config->deadlines().silence_s() + kSilenceMargin)
    return;
  Fail({{.code = ExitCode::kDeadline, .what = DescribeSilence(Observe(now), display_.AtStep())},
        members_.LogPath(-1),
        /*server_is_silent=*/true},
       now);
}

bool Supervisor::ServerMayHang(double now) const {
  // Less than silence_s, because the launcher may have received a heartbeat later than the workers
  // did.
  return ServerReports() && members_.running(0) &&
         now - server_.heard_at > 0.75 * plan_.config->deadlines().silence_s();
}

Observed Supervisor::Observe(double now) const {
  Observed observed{.server_pid = members_.pid(0)};
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_.stopped(i)) observed.stopped.push_back({members_.rank(i), members_.pid(i)});
  }
  if (ServerMayHang(now)) observed.server_silent_s = now - server_.heard_at;
  return observed;
}

double Supervisor::next_check() const {
  if (phase_ == Phase::kStopping) return stages_.next();
  return std::min({phase_ == Phase::kRunning ? kNever : deadline_, given_up_at_, early_exit_by_,
                   replacements_.next_check()});
}

bool Supervisor::Over(double now) const {
  if (phase_ == Phase::kStopping && stages_.GivenUp(now)) return true;
  if (phase_ == Phase::kFinishing && now >= given_up_at_) return true;
  if (phase_ != Phase::kStopping && phase_ != Phase::kFinishing) return false;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_.running(i)) return false;
  }
  return true;
}

}  // namespace muster
