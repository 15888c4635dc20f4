#include "ps/run/server.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/base/denormals.h"
#include "common/base/error.h"
#include "common/base/signals.h"
#include "common/base/text.h"
#include "common/config/compute_settings.h"
#include "common/config/config.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/link/wire_values.h"
#include "common/program/finish_step.h"
#include "ps/run/attach_updater.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kHeartbeatInterval{1000};
constexpr std::chrono::milliseconds kTimerInterval{5};
// Time to finish a step that is being updated when the run must stop.
constexpr std::chrono::seconds kFinishStep{kFinishStepSeconds};
// Number of messages to read before finished chunks are published.
constexpr int kMessagesAtATime = 64;

// With ABORT, no worker can join late, so there are no spare ranks.
uint32_t SeatsOf(const config::Config& config) {
  const bool ends = config.cluster().on_lost_worker() == config::Cluster::ABORT;
  return ends ? 0 : MostWorkers(config);
}

// Whether a replacement worker would fail the same way.
bool IsFinal(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kUsage:
    case ExitCode::kData:
    case ExitCode::kNonfinite:
    case ExitCode::kRefused:
      return true;
    default:
      return false;
  }
}

}  // namespace

Server::Server(const config::Config& config, Graph graph, const std::string& token,
               std::unique_ptr<ServerLink> link, Recorder& recorder, int interrupt_fd,
               const ResumePoint* resume, Taken* taken)
    : config_(config),
      graph_(std::move(graph)),
      recorder_(recorder),
      interrupt_fd_(interrupt_fd),
      members_(graph_.layout(),
               {token, JobOf(token), config.cluster().workers(), ComputeSettings(config),
                SeatsOf(config), config.cluster().min_workers()},
               recorder),
      run_(config_, graph_, members_, recorder, failure_, Clock::now(), resume),
      link_(std::move(link)) {
  MUSTER_CHECK(config.run().slices() > 0 && config.server().threads() > 0);
  link_->ShareWeights(run_.engine().variables.shared());
  if (taken == nullptr) return;
  waiting_ = taken->waiting;
  if (!taken->initial.empty()) {
    Variables& variables = run_.engine().variables;
    std::ranges::copy(taken->initial, variables.Weights(0).begin());
    variables.StartFromWeights();
  }
  updater_ = std::move(taken->updater);
  if (!updater_) return;
  AttachUpdater(*updater_, run_, [this](const Error& error) {
    const bool was_killed = error.code() == ExitCode::kProcessDied;
    const bool restarts = was_killed && !interrupt_ && !failure_.is_set();
    failure_.Set({error.code(), std::nullopt, error.what()});
    if (!restarts) return;
    // The launcher restarts a server that was killed, and the program with it.
    recorder_.Warn(std::string(error.what()) + "; the server ends with it");
    LogError("{}; this server ends with it", error.what());
    ::kill(::getpid(), SIGKILL);
  });
}

void Server::StartWithout(const std::vector<int64_t>& ranks) {
  for (const int64_t rank : ranks) {
    members_.GiveUp(static_cast<uint32_t>(rank));
    run_.keeper().watch.Lost(static_cast<uint32_t>(rank));
  }
}

ServerResult Server::Serve() {
  FlushDenormals();  // this thread updates small chunks
  LogInfo("update threads: {} x {}", run_.parts().engine.pool.threads(),
          run_.parts().engine.aggregator.instruction_set());
  try {
    for (const FromWorker& event : std::exchange(waiting_, {})) Receive(event, Clock::now());
    while (!run_.done() && !failure_.is_set()) RunOnce();
  } catch (const Error& error) {
    failure_.Set({error.code(), std::nullopt, error.what()});
  }
  if (failure_.is_set()) EndFailed();
  return EndCompleted();
}

void Server::RunOnce() {
  AwaitInput();
  // Advance before reading messages: a fast worker may answer the step's last chunk with messages
  // of the next step.
  Clock::time_point now = Clock::now();
  run_.Advance(/*collect=*/true, now);
  Flush();
  for (int i = 0; i < kMessagesAtATime && !failure_.is_set(); ++i) {
    const std::optional<FromWorker> event = link_->Receive();
    if (!event) break;
    now = Clock::now();
    Receive(*event, now);
    TakeLosses(now);
    // Small chunks are updated immediately. Work of a lost worker waits, because others may be lost
    // with it.
    if (event->kind != FromWorker::Kind::kLost) run_.Advance(/*collect=*/false, now);
    Flush();
  }
  now = Clock::now();
  RunTimers(now);
  TakeLosses(now);
  if (!failure_.is_set()) run_.Advance(/*collect=*/false, now);  // apply the effects of the timers
  StopAtBoundary();
  Flush();
  link_->Deliver();
}

void Server::Flush() {
  members_.TakeOutgoing(sending_);
  for (const ToWorker& next : sending_) {
    const wire::ServerMessage& message = next.Addressed();
    if (message.has_welcome()) {
      link_->ShareGradients(next.peer, GradientLayoutOf(message.welcome()));
    }
    // If the worker is gone, the link reports that after its last messages, which may explain why.
    const OutgoingTensor tensor{next.tensor, UrgencyOf(message.weights_chunk())};
    if (link_->Send(next.peer, message, tensor) != SendResult::kFull) continue;
    if (next.rank && members_.roster().RankOf(next.peer) == next.rank) {
      OnLost(*next.rank, ExitCode::kPeerFailed,
             "its send queue is full because it does not read its messages");
    }
  }
  sending_.clear();
}

// Returns when there may be something to do: input, a finished chunk, a signal or a timeout.
void Server::AwaitInput() {
  ThreadPool& pool = run_.engine().pool;
  const auto arrived = [&] { return link_->Pending() || pool.HasFinished(); };
  if (link_->may_spin() ? spin_.Spin(arrived) : arrived()) return;
  if (link_->PrepareToSleep() && pool.PrepareToSleep()) {
    pollfd fds[] = {{link_->fd(), POLLIN, 0}, {pool.fd(), POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
    // The descriptor only signals new input; the short timeout covers everything else.
    (void)::poll(fds, 3, static_cast<int>(Patience().count()));
    if ((fds[2].revents & POLLIN) != 0) CheckInterrupt();
  }
  if (link_->may_spin()) spin_.Slept();
}

// Returns how long to sleep, at most until the next worker counts as slow.
std::chrono::milliseconds Server::Patience() const {
  constexpr std::chrono::milliseconds kMost{100};
  const Clock::time_point now = Clock::now();
  const auto late = run_.LateBefore(now + kMost);
  if (!late) return kMost;
  const Clock::time_point next = std::max(*late, next_timers_);
  if (next <= now || next >= now + kMost) return kMost;
  return std::chrono::ceil<std::chrono::milliseconds>(next - now);
}

// Runs periodic work, at most once per kTimerInterval.
void Server::RunTimers(Clock::time_point now) {
  if (now < next_timers_) return;
  next_timers_ = now + kTimerInterval;
  CheckInterrupt();
  Extend(suspensions_.Look(now));
  run_.CheckTime(now);
  const double silence_s = config_.deadlines().silence_s();
  for (const uint32_t rank : members_.Silent(now, silence_s)) {
    OnLost(rank, ExitCode::kDeadline, fmt::format("silent for {:g} s", silence_s));
  }
  run_.keeper().saver.SubmitBestIfDue();
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + kHeartbeatInterval;
  members_.SendHeartbeats();
  events::Event event;
  event.mutable_beat();
  recorder_.Record(event);
  if (interrupt_) recorder_.Record(SavingEvent(run_.parts().state.step));
}

// Excludes the time in which this process was suspended: messages that arrived meanwhile are still
// unread, and the workers may have been suspended too.
void Server::Extend(Clock::duration suspension) {
  if (suspension == Clock::duration::zero()) return;
  if (suspension > std::chrono::seconds(2)) {  // shorter gaps only mean a busy machine
    LogWarning("this process was suspended for {:.1f} s; extending deadlines",
               std::chrono::duration<double>(suspension).count());
  }
  run_.Extend(suspension);
}

void Server::CheckInterrupt() {
  if (interrupt_fd_ < 0) return;
  const std::optional<signalfd_siginfo> received = NextSignal(interrupt_fd_);
  if (!received) return;
  const int signal = static_cast<int>(received->ssi_signo);
  if (signal == SIGUSR1) return run_.keeper().checkpoints.Ask();
  if (signal == SIGUSR2) {
    job_failed_ = true;
    return;
  }
  if (interrupt_) return;
  interrupt_ = {
      StopCode(signal), std::nullopt,
      fmt::format("stopped by {} at step {}", SignalName(signal), run_.parts().state.step)};
  stop_by_ = Clock::now() + kFinishStep;
  if (run_.parts().state.has_begun()) recorder_.Record(SavingEvent(run_.parts().state.step));
}

// Finishes a step that has been partly updated, so that a checkpoint can be saved.
void Server::StopAtBoundary() {
  if (!interrupt_ || failure_.is_set()) return;
  if (run_.parts().state.has_begun() && !run_.parts().AtBoundary() && Clock::now() < stop_by_)
    return;
  failure_.Set(*interrupt_);
}

void Server::Receive(const FromWorker& event, Clock::time_point now) {
  if (event.kind == FromWorker::Kind::kRefused) {
    return members_.Refuse("a connection from " + event.refused, event.why_refused);
  }
  const std::optional<uint32_t> seated = members_.roster().RankOf(event.peer);
  if (event.kind == FromWorker::Kind::kLost) {
    members_.OnClosed(event.peer);
    if (seated && members_.roster().at(*seated).state != MemberState::kFinished) {
      OnLost(*seated, ExitCode::kPeerFailed, "its connection ended");
    }
    return;
  }
  if (event.message.has_hello()) return OnHello(event, now);
  std::string why;
  const std::optional<uint32_t> rank = members_.SenderOf(event, now, why);
  if (rank) why = OnMessage(*rank, event, now);
  if (why.empty()) return;
  Drop(seated ? members_.roster().Name(*seated) : fmt::format("unknown peer {}", event.peer), why);
}

void Server::OnHello(const FromWorker& event, Clock::time_point now) {
  const Membership::Arrival arrival =
      members_.OnHello(event.peer, link_->ConnectionOf(event.peer), event.message.hello(),
                       link_->SharesMemory(event.peer), now);
  switch (arrival.outcome) {
    case Membership::Outcome::kRefused:
      return;
    case Membership::Outcome::kJoined:
      return run_.BeginIfComplete(now);
    case Membership::Outcome::kWaits:
    case Membership::Outcome::kJoinedLate:
    case Membership::Outcome::kCameBack:
      return run_.OnJoined(arrival.rank, now);
  }
}

std::string Server::OnMessage(uint32_t rank, const FromWorker& event, Clock::time_point now) {
  const wire::WorkerMessage& message = event.message;
  if ((message.has_ask() || message.has_tell()) && !HasProgram(config_)) {
    return "a named value in a job without programs";
  }
  switch (message.body_case()) {
    case wire::WorkerMessage::kReady:
      if (const std::string why = run_.OnReady(rank, message.ready(), now); !why.empty()) {
        OnLost(rank, ExitCode::kPeerFailed, why);
      }
      return "";
    case wire::WorkerMessage::kSliceLoss:
      return run_.OnSliceLoss(rank, message.slice_loss(), now);
    case wire::WorkerMessage::kGradientPart:
      return run_.OnGradient(rank, message.gradient_part(), event.payload, now);
    case wire::WorkerMessage::kEvaluatedBlock:
      return run_.OnEvaluatedBlock(rank, message.evaluated_block(), now);
    case wire::WorkerMessage::kStepTimes:
      return run_.OnStepTimes(rank, message.step_times());
    case wire::WorkerMessage::kAsk:
      return run_.values().OnAsk(rank, message.ask(), run_.parts().state.step, now);
    case wire::WorkerMessage::kTell:
      return run_.OnTell(rank, message.tell(), now);
    case wire::WorkerMessage::kFailure:
      OnFailure(rank, message.failure());
      return "";
    case wire::WorkerMessage::kHeartbeat:
      return "";
    case wire::WorkerMessage::kLeave:
      run_.OnLeave(rank, now);
      return "";
    case wire::WorkerMessage::kGoodbye:
      OnGoodbye(rank, now);
      return "";
    default:
      return "unknown message type";
  }
}

void Server::OnGoodbye(uint32_t rank, Clock::time_point now) {
  const bool released = members_.roster().at(rank).state == MemberState::kReleased;
  Depart(rank, now);
  if (released) {
    run_.OnLeft(rank, now);
  } else if (run_.parts().state.phase != RunPosition::Phase::kDone) {
    run_.OnLost(rank, ExitCode::kPeerFailed, "it left before the end", now);
  }
}

// Unless the config requires ABORT, the failure of one worker ends the run only if every worker
// would fail the same way.
void Server::OnFailure(uint32_t rank, const wire::Failure& failure) {
  const std::string what = Printable(failure.message());
  if (config_.cluster().on_lost_worker() != config::Cluster::ABORT &&
      !IsFinal(failure.exit_code())) {
    return OnLost(rank, ExitCode::kPeerFailed, "it failed: " + what);
  }
  failure_.Set({ExitCode::kPeerFailed, rank,
                fmt::format("{} failed at step {}: {}", members_.roster().Name(rank),
                            run_.parts().state.step, what)});
}

void Server::OnLost(uint32_t rank, ExitCode code, const std::string& why) {
  losses_.push_back({rank, members_.roster().at(rank).incarnation, code, why});
}

void Server::TakeLosses(Clock::time_point now) {
  while (!losses_.empty() && !failure_.is_set()) {
    for (const Loss& loss : std::exchange(losses_, {})) {
      // Skip a worker that was lost for another reason meanwhile, even if its rank was reassigned.
      const Member& member = members_.roster().at(loss.rank);
      if (!member.present() || member.incarnation != loss.incarnation) continue;
      run_.OnLost(loss.rank, loss.code, loss.why, now);
    }
  }
}

void Server::Drop(const std::string& who, const std::string& why) {
  if (!dropped_.Count()) return;
  LogWarning("dropped a message from {}: {} ({} so far)", who, why, dropped_.count());
}

}  // namespace muster
