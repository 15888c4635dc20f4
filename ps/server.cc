#include "ps/server.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/compute_settings.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kHeartbeatInterval{1000};
constexpr std::chrono::milliseconds kTimerInterval{5};
// For the step that is being updated when the run is to stop.
constexpr std::chrono::seconds kFinishStep{3};
// Messages that are read before finished chunks are published.
constexpr int kMessagesAtATime = 64;

// Nobody comes late to a job that ends with its first lost worker.
uint32_t SeatsOf(const config::Config& config) {
  const bool ends = config.cluster().on_lost_worker() == config::Cluster::ABORT;
  return ends ? 0 : MostWorkers(config);
}

// What another process would run into as well.
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

Server::Server(const config::Config& config, const std::string& token,
               std::unique_ptr<ServerLink> link, Reporter& reporter, int interrupt_fd,
               const ResumePoint* resume, bool evaluate_only)
    : config_(config),
      graph_(BuildGraph(config.model(), InputShape(config.data()))),
      reporter_(reporter),
      interrupt_fd_(interrupt_fd),
      members_(graph_.layout(),
               {token, JobOf(token), config.cluster().workers(), ComputeSettings(config),
                SeatsOf(config)},
               *link, reporter,
               [this](uint32_t rank, ExitCode code, const std::string& why) {
                 OnLost(rank, code, why);
               }),
      coordinator_(config_, graph_, members_, reporter, failure_, resume, evaluate_only),
      link_(std::move(link)) {
  MUSTER_CHECK(config.run().slices() > 0 && config.server().threads() > 0);
  link_->ShareWeights(coordinator_.shared_weights());
}

Server::~Server() = default;

ServerResult Server::Run() {
  FlushDenormals();  // small chunks are updated in this thread
  reporter_.Listening(link_->endpoint());
  LogInfo("listening on {}; updates with {} x {}", link_->endpoint(), coordinator_.pool().threads(),
          coordinator_.instruction_set());
  try {
    while (!coordinator_.done() && !failure_.is_set()) RunOnce();
  } catch (const Error& error) {
    failure_.Set({error.code(), std::nullopt, error.what()});
  }
  if (failure_.is_set()) EndFailed();
  return EndCompleted();
}

void Server::RunOnce() {
  AwaitInput();
  // Before any message is read: a fast worker answers the step's last chunk with the next step.
  coordinator_.Advance(/*collect=*/true);
  for (int i = 0; i < kMessagesAtATime && !failure_.is_set(); ++i) {
    const std::optional<FromWorker> event = link_->Receive();
    if (!event) break;
    Receive(*event);
    TakeLosses();
    coordinator_.Advance(/*collect=*/false);  // small chunks are updated at once
  }
  RunTimers();
  TakeLosses();
  if (!failure_.is_set()) coordinator_.Advance(/*collect=*/false);  // what follows from the time
  StopAtBoundary();
  link_->Deliver();
}

// Returns when there may be something to do: input, a finished chunk, a signal, or because it has
// been a while.
void Server::AwaitInput() {
  ThreadPool& pool = coordinator_.pool();
  const auto arrived = [&] { return link_->Pending() || pool.HasFinished(); };
  if (link_->may_spin() ? spin_.Spin(arrived) : arrived()) return;
  if (link_->PrepareToSleep() && pool.PrepareToSleep()) {
    pollfd fds[] = {{link_->fd(), POLLIN, 0}, {pool.fd(), POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
    // The link's descriptor tells of new input only; the short wait covers what it cannot tell.
    (void)::poll(fds, 3, static_cast<int>(Patience().count()));
    if ((fds[2].revents & POLLIN) != 0) CheckInterrupt();
  }
  if (link_->may_spin()) spin_.Slept();
}

// Not beyond the moment at which somebody is late.
std::chrono::milliseconds Server::Patience() const {
  constexpr std::chrono::milliseconds kMost{100};
  const Clock::time_point now = Clock::now();
  const Clock::time_point late = std::max(coordinator_.LateAt(), next_timers_);
  if (late <= now || late >= now + kMost) return kMost;
  return std::chrono::ceil<std::chrono::milliseconds>(late - now);
}

// What a clock decides. Every message need not pay for it.
void Server::RunTimers() {
  const Clock::time_point now = Clock::now();
  if (now < next_timers_) return;
  next_timers_ = now + kTimerInterval;
  CheckInterrupt();
  Forgive(suspensions_.Look(now));
  coordinator_.CheckDeadlines(now);
  for (const std::string& lost : coordinator_.saver().writer().TakeFailures()) {
    LogWarning("{}", lost);
    reporter_.Warning(lost + " (the best weights so far; it is tried again)");
  }
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + kHeartbeatInterval;
  members_.SendHeartbeats();
  reporter_.Beat();
  if (interrupt_) reporter_.Saving(coordinator_.step());
}

// Time in which this process did not run counts against nobody: what came meanwhile has not been
// read yet, and the workers may have been stopped with it.
void Server::Forgive(Clock::duration suspension) {
  if (suspension == Clock::duration::zero()) return;
  if (suspension > std::chrono::seconds(2)) {  // else only a busy machine
    LogWarning("this process looked at nothing for {:.1f} s; deadlines begin that much later",
               std::chrono::duration<double>(suspension).count());
  }
  coordinator_.Forgive(suspension);
  members_.Forgive(suspension);
}

void Server::CheckInterrupt() {
  if (interrupt_fd_ < 0) return;
  signalfd_siginfo info;
  if (::read(interrupt_fd_, &info, sizeof info) <= 0) return;
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGUSR1) return coordinator_.AskForCheckpoint();
  if (signal == SIGUSR2) {
    job_failed_ = true;
    return;
  }
  if (interrupt_) return;
  interrupt_ = {
      signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated, std::nullopt,
      fmt::format("stopped by SIG{} at step {}", ::sigabbrev_np(signal), coordinator_.step())};
  stop_by_ = Clock::now() + kFinishStep;
  if (coordinator_.has_begun()) reporter_.Saving(coordinator_.step());
}

// A step of which something has been updated is finished first: then its state can be kept.
void Server::StopAtBoundary() {
  if (!interrupt_ || failure_.is_set()) return;
  if (coordinator_.has_begun() && !coordinator_.AtBoundary() && Clock::now() < stop_by_) return;
  failure_.Set(*interrupt_);
}

void Server::Receive(const FromWorker& event) {
  switch (event.kind) {
    case FromWorker::Kind::kRefused:
      return members_.Refuse("a connection from " + event.refused, event.why_refused);
    case FromWorker::Kind::kLost:
      return members_.OnClosed(event.peer);
    default:
      break;
  }
  if (event.message.has_hello()) return OnHello(event);
  std::string why;
  const std::optional<uint32_t> rank = members_.SenderOf(event, why);
  if (rank) why = OnMessage(*rank, event);
  if (why.empty()) return;
  const std::optional<uint32_t> seated = members_.roster().RankOf(event.peer);
  Drop(seated ? members_.Name(*seated) : fmt::format("stranger {}", event.peer), why);
}

void Server::OnHello(const FromWorker& event) {
  const Membership::Arrival arrival = members_.OnHello(event.peer, event.message);
  switch (arrival.outcome) {
    case Membership::Outcome::kRefused:
      return;
    case Membership::Outcome::kWaits:
      return coordinator_.OnWaits();
    case Membership::Outcome::kJoined:
      if (members_.roster().Complete()) coordinator_.Begin();
      return;
    case Membership::Outcome::kJoinedLate:
    case Membership::Outcome::kCameBack:
      return coordinator_.OnJoined(arrival.rank);
  }
}

std::string Server::OnMessage(uint32_t rank, const FromWorker& event) {
  const wire::WorkerMessage& message = event.message;
  switch (message.body_case()) {
    case wire::WorkerMessage::kReady:
      if (const std::string why = coordinator_.OnReady(rank, message.ready()); !why.empty()) {
        OnLost(rank, ExitCode::kPeerFailed, why);
      }
      return "";
    case wire::WorkerMessage::kSliceLoss:
      return coordinator_.OnSliceLoss(rank, message.slice_loss());
    case wire::WorkerMessage::kGradientPart:
      return coordinator_.OnGradient(rank, message.gradient_part(), event.payload);
    case wire::WorkerMessage::kEvaluatedBlock:
      return coordinator_.OnEvaluatedBlock(rank, message.evaluated_block());
    case wire::WorkerMessage::kStepTimes:
      coordinator_.OnStepTimes(rank, message.step_times());
      return "";
    case wire::WorkerMessage::kFailure:
      OnFailure(rank, message.failure());
      return "";
    case wire::WorkerMessage::kBeat:
      return "";
    case wire::WorkerMessage::kLeave:
      coordinator_.OnLeave(rank);
      return "";
    case wire::WorkerMessage::kGoodbye:
      return OnGoodbye(rank);
    default:
      return "a message without a known body";
  }
}

std::string Server::OnGoodbye(uint32_t rank) {
  const bool released = members_.roster().at(rank).released;
  members_.OnGoodbye(rank);
  if (released) {
    coordinator_.OnLeft(rank);
  } else if (!coordinator_.finishing()) {
    coordinator_.OnLost(rank, ExitCode::kPeerFailed, "it left before the end");
  }
  return "";
}

// What is wrong with one worker is no reason to end the run, unless it is wrong with all.
void Server::OnFailure(uint32_t rank, const wire::Failure& failure) {
  const std::string what = Printable(failure.message());
  if (config_.cluster().on_lost_worker() != config::Cluster::ABORT &&
      !IsFinal(failure.exit_code())) {
    return OnLost(rank, ExitCode::kPeerFailed, "it failed: " + what);
  }
  failure_.Set(
      {ExitCode::kPeerFailed, rank,
       fmt::format("{} failed at step {}: {}", members_.Name(rank), coordinator_.step(), what)});
}

void Server::OnLost(uint32_t rank, ExitCode code, const std::string& why) {
  losses_.push_back({rank, members_.roster().at(rank).incarnation, code, why});
}

void Server::TakeLosses() {
  while (!losses_.empty() && !failure_.is_set()) {
    for (const Loss& loss : std::exchange(losses_, {})) {
      // Not of one that was lost in another way meanwhile, whose seat has a new one.
      const Member& member = members_.roster().at(loss.rank);
      if (!member.peer || member.incarnation != loss.incarnation) continue;
      coordinator_.OnLost(loss.rank, loss.code, loss.why);
    }
  }
}

void Server::Drop(const std::string& who, const std::string& why) {
  if (!dropped_.Count()) return;
  LogWarning("dropped a message of {}: {} ({} so far)", who, why, dropped_.count());
}

}  // namespace muster
