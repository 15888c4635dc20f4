// Who belongs to the job: joining, being welcomed, being lost, being sent home.
#include <fmt/core.h>
#include <poll.h>

#include <nlohmann/json.hpp>

#include "common/base/log.h"
#include "common/config/batch_norm_check.h"
#include "common/config/config.h"
#include "common/link/wire_values.h"
#include "ps/server.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kGoodbyeWait{3000};

}  // namespace

// a. Who joins, and with what.
void Server::OnHello(PeerId peer, const wire::WorkerMessage& message) {
  std::optional<std::string> reason;
  if (message.hello().instead_of_local() && phase_ == Phase::kPreparing) {
    reason = roster_.Reseat(peer, message.address(), message.hello());
    if (!reason) return WelcomeAgain(message.address().rank());
  } else if (phase_ != Phase::kGathering) {
    reason = "all workers of this job have joined already";
  } else {
    reason = roster_.Join(peer, message.address(), message.hello());
  }
  if (reason) {
    Refuse(fmt::format("rank {} (host {}, pid {})", message.address().rank(),
                       message.hello().host(), message.hello().pid()),
           *reason);
    wire::ServerMessage refusal;
    refusal.mutable_refused()->set_reason(*reason);
    (void)link_->Send(peer, refusal, {});
    return;
  }
  const uint32_t rank = message.address().rank();
  const std::string remark = roster_.Remark(rank);
  const std::string joined =
      fmt::format("{} joined{}{}", roster_.Name(rank), remark.empty() ? "" : "; ", remark);
  LogInfo("{}", joined);
  reporter_.Event("joined", {{"rank", rank}, {"message", joined}});
  if (roster_.Complete()) WelcomeAll();
}

void Server::Refuse(const std::string& who, const std::string& why) {
  if (!refused_.Count()) return;
  const std::string line = Printable(fmt::format("{}: {}", who, why));
  LogWarning("refused {} ({} so far)", line, refused_.count());
  reporter_.Event("refused", {{"message", "Refused " + line}});
}

void Server::WelcomeAll() {
  plan_ = PlanSteps(config_, roster_.train_samples());
  CheckBatchNorms(graph_, plan_);
  schedule_ = LearningRateSchedule(config_.learning_rate(), roster_.size(),
                                   plan_.At(plan_.total_steps).samples_before);
  if (config_.learning_rate().scaling() != config::LearningRate::NONE) {
    LogInfo("learning rate: base {:g} is scaled to {:g} ({}, {} workers)",
            config_.learning_rate().base(), schedule_.base(),
            config::LearningRate::Scaling_Name(config_.learning_rate().scaling()), roster_.size());
  }
  std::vector<ExpectedPart> parts;
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    const Range slices = EvenPart(plan_.slices, roster_.size(), rank);
    for (const TreeNode& node : Decompose(slices, plan_.slices)) parts.push_back({node, rank});
    Welcome(rank);
  }
  aggregator_.Expect(std::move(parts), plan_.slices);
  phase_ = Phase::kPreparing;
  step_deadline_began_ = Clock::now();
  for (size_t c = 0; c < aggregator_.chunks().size(); ++c) PublishChunk(step_, c);

  auto workers = nlohmann::ordered_json::array();
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    const Member& member = roster_.at(rank);
    workers.push_back(
        {{"rank", rank}, {"host", member.host}, {"pid", member.pid}, {"threads", member.threads}});
  }
  reporter_.Event("started", {{"workers", workers},
                              {"train_samples", plan_.train_samples},
                              {"test_samples", roster_.test_samples()},
                              {"total_steps", plan_.total_steps},
                              {"steps_per_epoch", plan_.StepsPerEpoch()},
                              {"global_batch", plan_.global_batch},
                              {"slices", plan_.slices},
                              {"parameters", graph_.layout().parameter_count()},
                              {"chunks", aggregator_.chunks().size()},
                              {"instruction_set", aggregator_.instruction_set()}});
}

void Server::Welcome(uint32_t rank) {
  const Range slices = EvenPart(plan_.slices, roster_.size(), rank);
  wire::ServerMessage message = NewMessage();
  wire::Welcome& welcome = *message.mutable_welcome();
  welcome.set_workers(roster_.size());
  for (const Chunk& chunk : aggregator_.chunks()) welcome.add_chunk_end(chunk.end);
  welcome.set_first_step(step_);
  welcome.set_train_samples(plan_.train_samples);
  welcome.set_global_batch(plan_.global_batch);
  welcome.set_total_steps(plan_.total_steps);
  welcome.set_slices(static_cast<uint32_t>(plan_.slices));
  welcome.set_slice_begin(static_cast<uint32_t>(slices.begin));
  welcome.set_slice_end(static_cast<uint32_t>(slices.end));
  welcome.set_tensor_type(WireTypeOf(config_.cluster()));
  if (const auto peer = roster_.at(rank).peer) link_->ShareGradients(*peer, SlotLayoutOf(welcome));
  SendTo(rank, message);
}

// A worker that came back over ZeroMQ, since it cannot use the memory of its first Welcome.
void Server::WelcomeAgain(uint32_t rank) {
  LogWarning(
      "{} gets its messages over ZeroMQ: no memory could be shared with it (its log, or a line "
      "above, says why)",
      roster_.Name(rank));
  Welcome(rank);
  for (size_t c = 0; c < aggregator_.chunks().size(); ++c) {
    wire::ServerMessage message = NewMessage();
    message.mutable_weights_chunk()->set_version(step_);
    message.mutable_weights_chunk()->set_chunk(static_cast<uint32_t>(c));
    SendTo(rank, message, aggregator_.WireWeightsOf(step_, c));
  }
}

// f. Nobody waits for ever.
void Server::OnLost(uint32_t rank) {
  if (roster_.at(rank).finished) return;
  blamed_ = rank;
  throw Error(ExitCode::kPeerFailed, "{} was lost at step {}: its connection ended",
              roster_.Name(rank), step_);
}

// Tells everyone to stop and waits, for a while, until they have said Goodbye or are gone.
void Server::StopAll(bool completed, const std::string& reason) {
  phase_ = Phase::kStopping;
  wire::ServerMessage message = NewMessage();
  message.mutable_stop()->set_completed(completed);
  message.mutable_stop()->set_reason(reason);
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    if (!roster_.at(rank).peer) continue;
    message.mutable_address()->set_rank(rank);
    message.mutable_address()->set_incarnation(roster_.at(rank).incarnation);
    if (link_->Send(*roster_.at(rank).peer, message, {}) != SendResult::kQueued) {
      roster_.at(rank).finished = true;
    }
  }
  link_->Deliver();
  const Clock::time_point deadline = Clock::now() + (completed ? kGoodbyeWait : kGoodbyeWait / 3);
  const auto everybody_left = [&] {
    for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
      if (roster_.at(rank).peer && !roster_.at(rank).finished) return false;
    }
    return true;
  };
  while (!everybody_left() && Clock::now() < deadline) {
    const std::optional<FromWorker> event = link_->Receive();
    if (!event) {
      pollfd fd{link_->fd(), POLLIN, 0};
      if (link_->PrepareToSleep()) (void)::poll(&fd, 1, 20);
      continue;
    }
    const std::optional<uint32_t> rank = roster_.RankOf(event->peer);
    if (rank && (event->kind == FromWorker::Kind::kLost || event->message.has_goodbye())) {
      roster_.at(*rank).finished = true;
    }
  }
}

}  // namespace muster
