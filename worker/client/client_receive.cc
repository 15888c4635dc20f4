// What comes from the server.
#include <algorithm>
#include <optional>
#include <utility>

#include "common/link/protocol.h"
#include "common/link/wire_values.h"
#include "common/trace/trace.h"
#include "worker/client/client.h"

namespace muster {

void Client::Fail(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  if (error_ == nullptr) error_ = std::move(why);
}

void Client::SetError(Error error) { error_ = std::make_exception_ptr(std::move(error)); }

void Client::SetMisfit(const google::protobuf::Message& message) {
  SetError(Error(ExitCode::kPeerFailed,
                 "the server sent {} {{ {} }}, which does not fit this job of {} steps and {} "
                 "slices, this worker's {} gradient buffers, or its assignment, {}",
                 message.GetDescriptor()->name(), message.ShortDebugString(), plan().total_steps,
                 plan().slices, terms_.arenas, share_.id));
}

wire::WorkerMessage Client::Heartbeat() {
  CheckSilence();
  wire::WorkerMessage message = NewMessage();
  if (options_.leave != nullptr && *options_.leave && Welcomed() && !leave_sent_) {
    leave_sent_ = true;
    message.mutable_leave();
    return message;
  }
  message.mutable_beat();
  return message;
}

bool Client::Welcomed() const {
  const std::lock_guard lock(mutex_);
  return welcome_;
}

void Client::CheckSilence() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();  // once: a later one could have another gap in it
  last_heard_ = WithoutSuspension(last_heard_, suspensions_.Look(now), now);
  const double silent = std::chrono::duration<double>(now - last_heard_).count();
  if (!welcome_ || silent <= options_.silence_s || error_ != nullptr) return;
  SetError(Error(ExitCode::kDeadline,
                 "the server has been silent for {:.0f} s (deadlines.silence_s): it is stopped, "
                 "stuck, or cut off from this host",
                 silent));
}

void Client::Handle(FromServer&& event) {
  // The copy into the weight buffer is made without the lock: nobody reads the chunk before it is
  // marked as arrived, and only who receives marks it.
  const bool is_weights =
      event.kind == FromServer::Kind::kMessage && event.message.has_weights_chunk();
  const bool stored = is_weights && StoreWeights(event.message.weights_chunk(), event.payload);
  const std::lock_guard lock(mutex_);
  if (event.kind != FromServer::Kind::kLost) {
    last_heard_ = Clock::now();
    HandleMessage(event, stored);
  } else if (!stopped_ && error_ == nullptr) {
    SetError(Error(ExitCode::kPeerFailed, "the connection to the server ended"));
  }
}

Client::Addressee Client::AddresseeOf(const wire::Address& address) const {
  if (address.job() != JobOf(options_.token)) return Addressee::kOther;
  if (!welcome_) return Addressee::kMine;  // the server says who this is
  if (address.rank() != rank_) return Addressee::kOther;
  if (address.incarnation() == incarnation_) return Addressee::kMine;
  return address.incarnation() < incarnation_ ? Addressee::kFormer : Addressee::kOther;
}

void Client::HandleMessage(FromServer& event, bool stored) {
  const wire::ServerMessage& message = event.message;
  const Addressee addressee = AddresseeOf(message.address());
  if (event.kind == FromServer::Kind::kMessage && message.has_refused()) {
    SetError(Error(ExitCode::kRefused, "the server refused this worker: {}",
                   message.refused().reason()));
  } else if (event.kind == FromServer::Kind::kMalformed || addressee == Addressee::kOther) {
    SetError(
        Error(ExitCode::kPeerFailed,
              "the server sent a message that is not of this protocol, or not for this worker"));
  } else if (addressee == Addressee::kFormer) {
    return;  // was on its way when this worker was fenced
  } else if (message.has_welcome()) {
    HandleWelcome(event);
  } else if (message.has_weights_chunk()) {
    MarkArrived(message.weights_chunk(), stored);
  } else if (message.has_enter() && IsVersion(message.enter().version())) {
    arrived_ = Arrivals(chunks().size(), message.enter().version());
  } else {
    HandleOrder(message);
  }
}

void Client::HandleOrder(const wire::ServerMessage& message) {
  if (stopped_) return;  // that was the last one
  if (message.has_assignment()) {
    HandleAssignment(message.assignment());
  } else if (message.has_train()) {
    HandleTrain(message.train());
  } else if (message.has_redo()) {
    HandleRedo(message.redo());
  } else if (message.has_fence()) {
    HandleFence(message.fence());
  } else if (message.has_evaluate()) {
    HandleEvaluate(message.evaluate());
  } else if (message.has_stop()) {
    HandleStop(message.stop());
  }
}

void Client::HandleAssignment(const wire::Assignment& assignment) {
  const auto share = ReadShare(assignment, plan(), terms_.arenas);
  if (!share) return SetMisfit(assignment);
  share_ = *share;
}

void Client::HandleEvaluate(const wire::Evaluate& evaluate) {
  if (!IsVersion(evaluate.version()) || evaluate.block_size() == 0 ||
      evaluate.block_begin() > evaluate.block_end()) {
    return SetMisfit(evaluate);
  }
  orders_.push_back({.kind = Order::Kind::kEvaluate,
                     .version = evaluate.version(),
                     .block_size = evaluate.block_size(),
                     .blocks = {evaluate.block_begin(), evaluate.block_end()},
                     .set = evaluate.set(),
                     .average = evaluate.average(),
                     .predictions = evaluate.predictions(),
                     .images = evaluate.images()});
}

void Client::HandleTrain(const wire::Train& train) {
  if (!IsVersion(train.step()) || train.samples() <= 0 || train.assignment() != share_.id) {
    return SetMisfit(train);
  }
  Order order{.kind = Order::Kind::kTrain,
              .version = train.step(),
              .samples = train.samples(),
              .assignment = share_.id};
  for (const TreeNode& node : share_.nodes) {
    const size_t i = order.leases.size();
    order.leases.push_back({.id = train.lease() + i, .node = node, .arena = i});
  }
  orders_.push_back(std::move(order));
}

// Before what was ordered earlier, but after what is urgent as well.
void Client::HandleRedo(const wire::Redo& redo) {
  const TreeNode node = NodeOf(redo.subtree());
  const bool fits =
      IsVersion(redo.step()) && redo.arena() < terms_.arenas && redo.samples() > 0 &&
      node.level <= Root(plan().slices).level && !Covers(node, plan().slices).empty() &&
      std::ranges::all_of(redo.chunk(), [&](uint32_t c) { return c < chunks().size(); });
  if (!fits) return SetMisfit(redo);
  const auto later = std::ranges::find_if_not(orders_, &Order::urgent);
  orders_.insert(later, {.kind = Order::Kind::kRedo,
                         .version = redo.step(),
                         .samples = redo.samples(),
                         .leases = {{.id = redo.lease(), .node = node, .arena = redo.arena()}},
                         .chunks = {redo.chunk().begin(), redo.chunk().end()}});
}

void Client::HandleFence(const wire::Fence& fence) {
  fenced_ = true;
  leave_sent_ = false;  // what the incarnation before said may not have been heard
  incarnation_ = fence.incarnation();
  arrived_ = {};
  orders_.clear();
  orders_.push_back({.kind = Order::Kind::kFence});
}

void Client::HandleStop(const wire::Stop& stop) {
  stopped_ = true;
  if (!welcome_ && stop.completed()) {
    SetError(Error(ExitCode::kOk, "this worker is not needed: {}", stop.reason()));
  } else if (!welcome_) {
    SetError(Error(ExitCode::kPeerFailed, "the server stopped the run: {}", stop.reason()));
  }
  orders_.push_back(
      {.kind = Order::Kind::kStop, .completed = stop.completed(), .reason = stop.reason()});
}

void Client::HandleWelcome(FromServer& event) {
  if (channel_->link().shares_memory() && !event.shared) {
    throw HandOverFailed("the server handed over no memory with Welcome (its log says why)");
  }
  const wire::Welcome& welcome = event.message.welcome();
  std::optional<Terms> terms = ReadWelcome(welcome, options_.arena_floats);
  if (!terms || welcome_) {
    SetError(Error(ExitCode::kPeerFailed,
                   "the server's Welcome does not fit this worker's arena of {} floats",
                   options_.arena_floats));
    return;
  }
  terms_ = std::move(*terms);
  share_ = terms_.share;
  rank_ = event.message.address().rank();
  incarnation_ = event.message.address().incarnation();
  channel_->SetWireType(wire_type(), terms_.LargestChunk());
  const GradientLayout layout = GradientLayoutOf(welcome);
  tensors_ = event.shared ? MakeSharedTensors(std::move(*event.shared), layout, wire_type())
                          : MakeOwnTensors(layout, wire_type());
  welcome_ = true;
}

bool Client::StoreWeights(const wire::WeightsChunk& weights, const Payload& payload) {
  if (!arrived_.IsNext(weights)) return false;
  const trace::Span span(
      "arrive", {}, {.step = weights.version(), .chunk = static_cast<int32_t>(weights.chunk())});
  const ChunkRange& range = chunks()[weights.chunk()];
  const int buffer =
      weights.average() ? TensorStore::kAverageBuffer : static_cast<int>(weights.version() % 2);
  return tensors_->Store(buffer, {range.begin, range.size()}, payload);
}

void Client::MarkArrived(const wire::WeightsChunk& weights, bool stored) {
  if (!stored) return SetMisfit(weights);  // not the one that comes next, or not whole
  arrived_.Mark(weights);
}

}  // namespace muster
