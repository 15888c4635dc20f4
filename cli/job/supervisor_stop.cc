// Stops a job, and finds its outcome.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "cli/job/supervisor.h"
#include "common/base/signals.h"

namespace muster {
namespace {

// `timeout` sends its signal twice in a row, and wrappers forward a Ctrl-C that we got already.
constexpr double kSameRequestSeconds = 0.2;

constexpr double kGraceSeconds = 2.5;       // for the others to notice a failure by themselves
constexpr double kStartGraceSeconds = 0.5;  // the same while they may not be connected yet
constexpr double kServerFirstSeconds = 2;   // for the server to write the last line
constexpr double kLostServerSeconds = 0.4;  // for workers to end without it, and again by SIGTERM
constexpr double kSrunSeconds = 5;          // the same for srun, which passes SIGTERM on
constexpr double kTermSeconds = 1.5;        // from SIGTERM to SIGKILL
constexpr double kGiveUpSeconds = 5;        // from SIGKILL to giving up on the process
constexpr double kWriteSeconds = 3;         // between two events of a server that is writing
constexpr double kMostWriteSeconds = 300;   // for all of its writing

}  // namespace

void StopStages::Begin(double terminate_server_at, double terminate_all_at) {
  terminate_server_at_ = terminate_server_at;
  terminate_all_at_ = terminate_all_at;
  kill_at_ = terminate_all_at + kTermSeconds;
  give_up_at_ = kill_at_ + kGiveUpSeconds;
  wait_until_ = terminate_all_at + kMostWriteSeconds;
}

void StopStages::BeginAfterFailure(double now, bool joined) {
  Begin(kNever, now + (joined ? kGraceSeconds : kStartGraceSeconds));
}

void StopStages::BeginAtOnce(double now) {
  Begin(kNever, now);
  wait_until_ = now + kWriteSeconds;  // the server may have been writing for too long
}

void StopStages::BeginWithoutServer(double now, bool by_srun) {
  Begin(kNever, now + kLostServerSeconds);
  kill_at_ = terminate_all_at_ + (by_srun ? kSrunSeconds : kLostServerSeconds);
}

void StopStages::BeginWithServer(double now) {
  server_first_ = true;
  Begin(now, now + kServerFirstSeconds);
}

void StopStages::WaitForServer(double now) {
  const double until = std::min(now + kWriteSeconds, wait_until_);
  if (terminate_all_at_ != kNever) terminate_all_at_ = std::max(terminate_all_at_, until);
  if (kill_at_ == kNever) return;  // SIGKILL has been sent
  kill_at_ = std::max(kill_at_, until + kTermSeconds);
  give_up_at_ = std::max(give_up_at_, kill_at_ + kGiveUpSeconds);
}

void StopStages::Hurry(double now) {
  terminate_all_at_ = std::min(terminate_all_at_, now);
  kill_at_ = std::min(kill_at_, now + kTermSeconds);
}

void StopStages::Kill(double now) {
  kill_at_ = now;
  wait_until_ = -kNever;
}

StopStages::Due StopStages::Take(double now, bool server_gone) {
  Due due;
  if (now >= terminate_server_at_) {
    due.terminate_server = true;
    terminate_server_at_ = kNever;
  }
  const bool follow = server_first_ && server_gone && terminate_all_at_ != kNever;
  if (now >= terminate_all_at_ || follow) {
    due.terminate_all = true;
    terminate_all_at_ = kNever;
  }
  if (now >= kill_at_) {
    due.kill_all = true;
    kill_at_ = kNever;
    give_up_at_ = now + kGiveUpSeconds;
  }
  return due;
}

double StopStages::next() const {
  return std::min({terminate_server_at_, terminate_all_at_, kill_at_, give_up_at_});
}

// ---------------------------------------------------------------------------------- stopping

void Supervisor::FailWithOthers(double now) {
  if (phase_ == Phase::kStopping) return;
  at_failure_.observed = Observe(now);
  at_failure_.at = now;
  at_failure_.joining = phase_ == Phase::kWorkersJoining;
  if (phase_ > Phase::kServerStarting) members_.TellServerOfFailure();
  stages_.BeginAfterFailure(now, phase_ > Phase::kWorkersJoining);
  phase_ = Phase::kStopping;
  display_.ShowStage("Stopping: a process of the job has failed");
  // A stopped process notices nothing by itself.
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_.stopped(i)) members_.Signal(i, SIGTERM);
  }
}

void Supervisor::Fail(Finding finding, double now) {
  if (phase_ == Phase::kStopping) return;
  found_ = std::move(finding);
  FailWithOthers(now);
  stages_.BeginAtOnce(now);
}

void Supervisor::OnSignal(const ReceivedSignal& received, double now) {
  const int signal = received.number;
  const StopRequest request{.at = now, .by_key = received.from_terminal, .signal = signal};
  if (stop_request_) {
    // Slurm sends USR1 before the time limit, and then TERM, which must not end the writing of the
    // state. In a shell the second signal is the user's.
    const bool of_slurm = plan_.in_slurm && (stop_signal_ == SIGUSR1 || !plan_.has_terminal);
    if (of_slurm && !received.from_terminal) return;
    if (signal == SIGHUP) return;
    // The end of a session brings SIGHUP and SIGTERM, in either order. Nobody insists.
    if (stop_request_->signal == SIGHUP) {
      stop_request_ = request;
      return;
    }
    // Two keystrokes are two requests, however fast. A signal that a process sends shortly after
    // the first may be the same request.
    const bool again = (received.from_terminal && stop_request_->by_key) ||
                       now > stop_request_->at + kSameRequestSeconds;
    if (again) stages_.Kill(now);
    return;
  }
  stop_request_ = request;
  if (phase_ == Phase::kStopping) return stages_.Hurry(now);  // after a failure
  phase_ = Phase::kStopping;
  stop_signal_ = signal;
  stages_.BeginWithServer(now);
  display_.ShowStage(signal == SIGINT ? "Stopping (Ctrl-C again kills at once)" : "Stopping");
}

void Supervisor::ContinueStopping(double now) {
  const StopStages::Due due = stages_.Take(now, !members_.running(0));
  if (due.terminate_server) members_.Signal(0, SIGTERM);
  if (due.terminate_all) SignalAll(SIGTERM);
  if (due.kill_all) SignalAll(SIGKILL);
}

void Supervisor::SignalAll(int signal) {
  for (size_t i = 0; i < members_.size(); ++i) members_.Signal(i, signal);
}

// ---------------------------------------------------------------------------------- judging

JobOutcome Supervisor::Outcome() const {
  JobOutcome outcome{.summary = server_.summary, .ends = replacements_.ends(), .changes = changes_};
  outcome.ends.insert(plan_.ends.begin(), plan_.ends.end());
  if (outcome.summary && plan_.changes.changes_size() > 0) {
    // The last server counted only its own changes.
    outcome.summary->clear_changes();
    outcome.summary->MergeFrom(changes_);
  }
  if (stop_signal_ != 0) {
    outcome.stop_signal = stop_signal_;
    outcome.exit_code = StopCode(stop_signal_);
    return outcome;
  }
  if (phase_ == Phase::kFinishing) return outcome;

  if (server_.failure) outcome.server_said = server_.failure->what;
  bool stuck = false;
  if (found_) {
    outcome.failure = found_->failure;
    outcome.log_path = found_->log_path;
    stuck = found_->server_is_silent;
    outcome.could_not_start = found_->could_not_start;
  } else {
    std::vector<EndedProcess> ended = ended_;
    // If the server reported a cause, the end of a replaceable worker is not the cause, nor is that
    // of all workers together.
    if (server_.failure && !server_.failure->what.empty()) {
      std::erase_if(ended, [this](const EndedProcess& process) {
        return process.rank == kSrunRank ||
               (process.rank >= 0 && replacements_.MayEnd(process, at_failure_.at));
      });
    }
    FailureCause judgement =
        FindFailureCause(ended, at_failure_.observed, server_.failure, display_.AtStep(),
                         [this](int rank) { return members_.LastWords(rank); });
    const JobFailure& failure = judgement.failure;
    stuck = judgement.server_is_stuck;
    // srun knows best why a worker did not start.
    const int shown = plan_.srun && at_failure_.joining ? kSrunRank : kServerRank;
    outcome.log_path = members_.LogPath(failure.rank ? static_cast<int>(*failure.rank) : shown);
    if (judgement.in_server_words) outcome.server_said.clear();
    outcome.failure = std::move(judgement.failure);
  }
  outcome.exit_code = outcome.failure->code;
  outcome.lost_server = LostServer(stuck);
  return outcome;
}

std::optional<ServerLoss> Supervisor::LostServer(bool stuck) const {
  const std::optional<int> signal = found_ ? std::nullopt : SignalOfServer(ended_);
  if (stop_request_ || server_.failure || (!stuck && !signal)) return std::nullopt;
  return ServerLoss{.cause = stuck ? "silent" : fmt::format("signal {}", *signal),
                    .step = display_.step(),
                    .at = at_failure_.at};
}

}  // namespace muster
