#include "ps/server.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "common/base/log.h"
#include "common/config/build_graph.h"
#include "common/config/chunk_bytes.h"
#include "common/config/compute_settings.h"
#include "common/config/config.h"
#include "common/link/protocol.h"
#include "common/link/wire_values.h"
#include "common/trace/trace.h"
#include "ps/choose_kernels.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kBeatInterval{1000};
constexpr std::chrono::milliseconds kLiveInterval{200};
constexpr std::chrono::milliseconds kHousekeeping{5};

}  // namespace

Server::Server(const config::Config& config, const std::string& token,
               std::unique_ptr<ServerLink> link, Reporter& reporter, int interrupt_fd)
    : config_(config),
      graph_(BuildGraph(config.model(), InputShape(config.data()))),
      reporter_(reporter),
      interrupt_fd_(interrupt_fd),
      roster_(graph_.layout(),
              {token, JobOf(token), config.cluster().workers(), ComputeSettings(config)}),
      aggregator_(graph_.layout(), CutChunks(graph_.layout(), config.cluster()), config.optimizer(),
                  ChooseKernels(config.server().instruction_set()), config.run().on_nonfinite(),
                  config.run().seed(), WireTypeOf(config.cluster()), pool_,
                  [this](int64_t version, size_t chunk) { PublishChunk(version, chunk); }),
      pool_(config.server().threads()),
      next_waiting_(began_ + std::chrono::seconds(5)),
      link_(std::move(link)) {
  MUSTER_CHECK(config.run().slices() > 0 && config.server().threads() > 0);
  link_->ShareWeights(aggregator_.planes());
}

Server::~Server() = default;

ServerResult Server::Run() {
  FlushDenormals();  // small chunks are updated in this thread
  reporter_.Event("listening", {{"endpoint", link_->endpoint()}});
  LogInfo("listening on {}; updates with {} x {}", link_->endpoint(), pool_.threads(),
          aggregator_.instruction_set());
  try {
    while (!done_) Turn();
  } catch (const Error& error) {
    const bool interrupted =
        error.code() == ExitCode::kTerminated || error.code() == ExitCode::kInterrupted;
    LogError("{}", error.what());
    if (!interrupted) {
      nlohmann::ordered_json event{{"message", error.what()},
                                   {"exit_code", static_cast<int>(error.code())}};
      if (blamed_) event["rank"] = *blamed_;
      reporter_.Event("failure", event);
    }
    const bool trained = phase_ != Phase::kGathering && phase_ != Phase::kPreparing;
    StopAll(false, error.what());
    // What was reached: the last version whose chunks are all there.
    const auto summary =
        progress_.Summary(interrupted ? "interrupted" : "failed", aggregator_.HashWeights(step_));
    // A run that never began leaves no line: its directory can be used again.
    if (trained) reporter_.Metrics(summary);
    reporter_.Event("summary", summary);
    throw;
  }
  StopAll(true, "the run is complete");
  const auto summary = progress_.Summary("completed", aggregator_.HashWeights(step_));
  reporter_.Metrics(summary);
  reporter_.Event("summary", summary);
  LogInfo("completed: {}", summary.dump());
  ServerResult result{step_, aggregator_.HashWeights(step_), std::nullopt, dropped_.count()};
  if (summary.contains("test_accuracy")) result.test_accuracy = summary["test_accuracy"];
  return result;
}

// Returns when there may be something to do: input, a finished chunk, a signal, or because it has
// been a while.
void Server::AwaitInput() {
  const auto arrived = [this] { return link_->Pending() || pool_.HasFinished(); };
  if (link_->may_spin() ? spin_.Spin(arrived) : arrived()) return;
  if (link_->PrepareToSleep() && pool_.PrepareToSleep()) {
    pollfd fds[] = {{link_->fd(), POLLIN, 0}, {pool_.fd(), POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
    // The link's descriptor tells of new input only; the short wait covers what it cannot tell.
    (void)::poll(fds, 3, 100);
    if ((fds[2].revents & POLLIN) != 0) CheckInterrupt();
  }
  if (link_->may_spin()) spin_.Slept();
}

// What a clock decides. Every message need not pay for it.
void Server::KeepHouse() {
  const Clock::time_point now = Clock::now();
  if (now < next_housekeeping_) return;
  next_housekeeping_ = now + kHousekeeping;
  CheckInterrupt();
  Forgive(own_gap_.Look(now));
  CheckDeadlines();
  SendBeats();
}

void Server::Turn() {
  AwaitInput();
  pool_.Collect();
  CheckFinite();
  // Before any message is read: a fast worker answers the step's last chunk with the next step.
  EndStepIfComplete();
  // A bounded number at a time, so that finished chunks are published in between.
  for (int i = 0; i < 64; ++i) {
    const std::optional<FromWorker> event = link_->Receive();
    if (!event) break;
    Receive(*event);
    CheckFinite();
    EndStepIfComplete();  // small chunks are updated at once
  }
  KeepHouse();
  link_->Deliver();
}

void Server::Receive(const FromWorker& event) {
  if (event.kind == FromWorker::Kind::kRefused) {
    return Refuse("a connection from " + event.refused, kWrongToken);
  }
  const std::optional<uint32_t> rank = roster_.RankOf(event.peer);
  const std::string who = rank ? roster_.Name(*rank) : fmt::format("stranger {}", event.peer);
  if (event.kind == FromWorker::Kind::kLost) {
    if (rank) OnLost(*rank);
    return;
  }
  if (event.kind == FromWorker::Kind::kMalformed)
    return Drop(who, "not a message of this protocol");
  if (event.message.has_hello()) return OnHello(event.peer, event.message);
  if (!rank) return Drop(who, "has not joined");
  if (!roster_.Matches(*rank, event.message.address())) {
    return Drop(who, "wrong job, rank or incarnation");
  }
  roster_.at(*rank).last_heard = Clock::now();
  OnMessage(*rank, event.message, event.payload);
}

void Server::Drop(const std::string& who, const std::string& why) {
  if (!dropped_.Count()) return;
  LogWarning("dropped a message of {}: {} ({} so far)", who, why, dropped_.count());
}

void Server::OnMessage(uint32_t rank, const wire::WorkerMessage& message, const Payload& payload) {
  switch (message.body_case()) {
    case wire::WorkerMessage::kReady: {
      roster_.at(rank).ready = true;
      if (phase_ != Phase::kPreparing) return;
      for (uint32_t r = 0; r < roster_.size(); ++r) {
        if (!roster_.at(r).ready) return;
      }
      phase_ = Phase::kTraining;
      LogInfo("all {} workers are ready: {} steps of {} samples", roster_.size(), plan_.total_steps,
              plan_.global_batch);
      progress_.Begin(plan_, roster_.size());
      OrderStep(step_);
      return BeginStep(step_);
    }
    case wire::WorkerMessage::kSliceLoss:
      return OnSliceLoss(rank, message.slice_loss());
    case wire::WorkerMessage::kGradientPart:
      return OnGradient(rank, message.gradient_part(), payload);
    case wire::WorkerMessage::kEvaluatedBlock:
      return OnEvaluatedBlock(rank, message.evaluated_block());
    case wire::WorkerMessage::kStepTimes:
      return progress_.AddTimes(rank, message.step_times());
    case wire::WorkerMessage::kFailure:
      blamed_ = rank;
      throw Error(ExitCode::kPeerFailed, "{} failed at step {}: {}", roster_.Name(rank), step_,
                  message.failure().message());
    case wire::WorkerMessage::kBeat:
      return;
    case wire::WorkerMessage::kGoodbye:
      roster_.at(rank).finished = true;
      if (phase_ != Phase::kStopping) {
        throw Error(ExitCode::kPeerFailed, "{} left at step {}, before the end", roster_.Name(rank),
                    step_);
      }
      return;
    default:
      return Drop(roster_.Name(rank), "a message without a known body");
  }
}

void Server::CheckInterrupt() {
  if (interrupt_fd_ < 0) return;
  signalfd_siginfo info;
  if (::read(interrupt_fd_, &info, sizeof info) <= 0) return;
  const int signal = static_cast<int>(info.ssi_signo);
  throw Error(signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated,
              "stopped by SIG{} at step {}", ::sigabbrev_np(signal), step_);
}

void Server::SendBeats() {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + kBeatInterval;
  wire::ServerMessage message = NewMessage();
  message.mutable_beat();
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    if (roster_.at(rank).peer) SendTo(rank, message);
  }
  reporter_.Event("beat", nlohmann::ordered_json::object(), Reporter::Priority::kProgress);
}

bool Server::LiveLineIsDue() {
  if (Clock::now() < next_live_) return false;
  next_live_ = Clock::now() + kLiveInterval;
  return true;
}

wire::ServerMessage Server::NewMessage() const {
  wire::ServerMessage message;
  message.mutable_address()->set_job(roster_.job());
  return message;
}

void Server::SendTo(uint32_t rank, wire::ServerMessage& message,
                    std::span<const std::byte> tensor) {
  const Member& member = roster_.at(rank);
  message.mutable_address()->set_rank(rank);
  message.mutable_address()->set_incarnation(member.incarnation);
  if (!member.peer) return;
  // Of a worker that has gone the link tells after its last messages, which may say why.
  const Urgency urgency = UrgencyOf(message.weights_chunk());
  if (link_->Send(*member.peer, message, {tensor, urgency}) != SendResult::kFull) return;
  blamed_ = rank;
  throw Error(ExitCode::kPeerFailed, "{} was lost at step {}: it does not take its messages",
              roster_.Name(rank), step_);
}

void Server::Broadcast(wire::ServerMessage& message, std::span<const std::byte> tensor) {
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) SendTo(rank, message, tensor);
}

}  // namespace muster
