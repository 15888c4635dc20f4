// The end of a run, completed or failed.
#include <poll.h>

#include <chrono>
#include <future>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/config/config.h"
#include "common/events/metrics_line.h"
#include "ps/run/attach_updater.h"
#include "ps/run/server.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kSavingInterval{1000};
constexpr std::chrono::milliseconds kGoodbyeWait{3000};
// Number of messages from late workers to read before checking again whether the files are written,
// and how long to wait for one.
constexpr int kLateMessages = 64;
constexpr std::chrono::milliseconds kLateWait{20};
constexpr std::chrono::milliseconds kLateHeartbeat{1000};

}  // namespace

// Sends an event once per second. The launcher keeps waiting for the disk while it gets this event.
void Server::TellOfSaving(bool waits_for_programs) {
  const Clock::time_point now = Clock::now();
  if (now < next_saving_) return;
  next_saving_ = now + kSavingInterval;
  recorder_.Record(SavingEvent(run_.parts().state.step, waits_for_programs));
}

void Server::StopAll(bool completed, const std::string& reason) {
  Flush();  // sends messages that an error left unsent, with their tensors
  members_.StopAll(completed, reason, run_.parts().state.step);
  members_.TakeOutgoing(sending_);
  for (const ToWorker& stop : sending_) {
    const bool gone = link_->Send(stop.peer, stop.Addressed(), {}) == SendResult::kGone;
    if (gone && stop.rank) members_.MarkFinished(*stop.rank);
  }
  sending_.clear();
  link_->Deliver();
  const Clock::time_point end = Clock::now() + (completed ? kGoodbyeWait : kGoodbyeWait / 3);
  while (!members_.AllFinished() && Clock::now() < end) ServeLate(kLateWait);
}

void Server::ServeLate(std::chrono::milliseconds patience) {
  pollfd fd{link_->fd(), POLLIN, 0};
  if (!link_->Pending() && link_->PrepareToSleep()) {
    (void)::poll(&fd, 1, static_cast<int>(patience.count()));
  }
  const Clock::time_point now = Clock::now();
  for (int i = 0; i < kLateMessages; ++i) {
    const std::optional<FromWorker> event = link_->Receive();
    if (!event) break;
    OnLate(*event, now);
  }
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + kLateHeartbeat;
    members_.SendHeartbeats();
    for (const uint32_t rank : members_.Silent(now, config_.deadlines().silence_s())) {
      Depart(rank, now);
    }
  }
  Flush();
  for (const Loss& loss : std::exchange(losses_, {})) Depart(loss.rank, now);
  link_->Deliver();
}

void Server::OnLate(const FromWorker& event, Clock::time_point now) {
  const std::optional<uint32_t> rank = members_.roster().RankOf(event.peer);
  const wire::WorkerMessage& message = event.message;
  if (message.has_hello()) return members_.TurnAway(event.peer, message.hello());
  if (rank && (event.kind == FromWorker::Kind::kLost || message.has_goodbye())) {
    return Depart(*rank, now);
  }
  std::string why;
  if (!members_.SenderOf(event, now, why)) return;
  if (message.has_ask() || message.has_tell()) why = OnMessage(*rank, event, now);
  if (!why.empty()) Drop(members_.roster().Name(*rank), why);
}

void Server::Depart(uint32_t rank, Clock::time_point now) {
  members_.MarkFinished(rank);
  run_.values().Drop(rank, run_.parts().state.step, now);
}

// A program has said Goodbye when it has asked for work after the last step.
void Server::AwaitPrograms() {
  const Clock::time_point end =
      Clock::now() + std::chrono::ceil<Clock::duration>(
                         std::chrono::duration<double>(config_.deadlines().once_s()));
  while (!members_.AllFinished() && !interrupt_ && !failure_.is_set() && Clock::now() < end) {
    TellOfSaving(/*waits_for_programs=*/true);
    ServeLate(kLateWait);
    CheckInterrupt();
  }
}

void Server::KeepLast() {
  Checkpoints& checkpoints = run_.keeper().checkpoints;
  ThreadPool& pool = run_.engine().pool;
  checkpoints.TakeLast();
  while (checkpoints.busy()) {
    pollfd fd{pool.fd(), POLLIN, 0};
    if (pool.PrepareToSleep()) (void)::poll(&fd, 1, 500);
    pool.Collect();
    TellOfSaving();
  }
}

void Server::SaveModels() {
  ModelSaver& saver = run_.keeper().saver;
  if (!run_.parts().state.has_begun() || !saver.writes()) return;
  const std::future<void> saved = saver.SaveLast(run_.parts().state.step);
  do {
    TellOfSaving();
    ServeLate({});
  } while (saved.wait_for(kLateWait) != std::future_status::ready);
}

void Server::EndFailed() {
  const JobFailure& failure = *failure_.get();
  run_.values().Close();  // a program that waits for one could not give its state
  const bool interrupted =
      failure.code == ExitCode::kTerminated || failure.code == ExitCode::kInterrupted;
  interrupted ? LogError("{}", failure.what) : recorder_.Record(FailureEvent(failure));
  StopAll(false, failure.what);
  // A checkpoint of non-finite values is useless.
  if (failure.code != ExitCode::kNonfinite && run_.parts().AtBoundary()) KeepLast();
  // Saves the last complete version.
  SaveModels();
  if (const std::string lost = run_.parts().keeper.saver.trouble(); !lost.empty()) {
    recorder_.Warn(lost);
  }
  (void)run_.End(interrupted && !job_failed_ ? events::Summary::INTERRUPTED
                                             : events::Summary::FAILED);
  throw Error(failure.code, "{}", failure.what);
}

ServerResult Server::EndCompleted() {
  StopAll(true, "the run is complete");
  SaveModels();
  if (HasProgram(config_)) AwaitPrograms();
  if (failure_.is_set()) EndFailed();
  if (updater_) {
    const auto meanwhile = [this] {
      TellOfSaving();
      ServeLate({});
    };
    run_.keeper().program_trouble = EndUpdater(*updater_, run_.parts().state.step, meanwhile);
  }
  const events::Summary summary = run_.End(events::Summary::COMPLETED);
  LogInfo("completed: {}", JsonText(MetricsLine(summary)));
  ServerResult result{
      .steps = run_.parts().state.step,
      .weights_hash = run_.parts().engine.variables.HashWeights(run_.parts().state.step),
      .dropped_messages = dropped_.count(),
      .trouble = summary.trouble().empty() ? summary.lost() : summary.trouble()};
  if (summary.test().has_accuracy()) result.test_accuracy = summary.test().accuracy();
  return result;
}

}  // namespace muster
