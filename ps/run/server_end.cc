// The end of a run, completed or failed.
#include <poll.h>

#include <chrono>
#include <future>
#include <string>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/events/metrics_line.h"
#include "ps/run/attach_updater.h"
#include "ps/run/server.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kSavingInterval{1000};
constexpr std::chrono::milliseconds kGoodbyeWait{3000};
// Number of messages from late workers to read before checking again whether the files are written.
constexpr int kLateMessages = 64;

}  // namespace

// Sends an event once per second. The launcher keeps waiting for the disk while it gets this event.
void Server::TellOfSaving() {
  const Clock::time_point now = Clock::now();
  if (now < next_saving_) return;
  next_saving_ = now + kSavingInterval;
  recorder_.Record(SavingEvent(run_.parts().state.step));
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
  while (!members_.AllFinished() && Clock::now() < end) {
    const std::optional<FromWorker> event = link_->Receive();
    link_->Deliver();
    if (!event) {
      pollfd fd{link_->fd(), POLLIN, 0};
      if (link_->PrepareToSleep()) (void)::poll(&fd, 1, 20);
      continue;
    }
    const std::optional<uint32_t> rank = members_.roster().RankOf(event->peer);
    if (rank && (event->kind == FromWorker::Kind::kLost || event->message.has_goodbye())) {
      members_.MarkFinished(*rank);
    }
    if (event->message.has_hello()) members_.TurnAway(event->peer, event->message.hello());
    Flush();
    link_->Deliver();
  }
}

void Server::TurnAway() {
  for (int i = 0; i < kLateMessages; ++i) {
    const std::optional<FromWorker> event = link_->Receive();
    if (!event) break;
    if (event->message.has_hello()) members_.TurnAway(event->peer, event->message.hello());
  }
  Flush();
  link_->Deliver();
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
    TurnAway();
  } while (saved.wait_for(kSavingInterval) != std::future_status::ready);
}

void Server::EndFailed() {
  const JobFailure& failure = *failure_.get();
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
  if (updater_) {
    const auto meanwhile = [this] {
      TellOfSaving();
      TurnAway();
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
