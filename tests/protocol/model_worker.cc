#include "tests/protocol/model_worker.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/base/error.h"
#include "common/link/wire_values.h"
#include "ps/evaluation.h"

namespace muster::testing {

// ---------------------------------------------------------------------------------- reading

void ModelWorker::Receive(const wire::ServerMessage& message) {
  if (message.has_beat()) return;
  if (!unread_.empty() || IsUrgent(message)) {
    unread_.push_back(message);
  } else {
    Take(message);
  }
}

void ModelWorker::Read() {
  do {
    Take(unread_.front());
    unread_.pop_front();
  } while (!unread_.empty() && !IsUrgent(unread_.front()));
}

void ModelWorker::Take(const wire::ServerMessage& message) {
  const wire::Address& address = message.address();
  if (message.has_refused()) {  // another has its seat
    ended_ = true;
  } else if (!welcomed_ && message.has_welcome()) {
    welcomed_ = true;
    ready_due_ = true;
    rank_ = address.rank();
    incarnation_ = address.incarnation();
    share_.id = message.welcome().assignment().id();
    share_.nodes = NodesOf(message.welcome().assignment());
    arenas_.resize(message.welcome().arenas());
  } else if (!welcomed_ || address.rank() != rank_ || address.incarnation() > incarnation_) {
    if (!message.has_stop()) trouble_ = "is sent a message that is for somebody else";
  } else if (address.incarnation() < incarnation_) {
    return;  // was on its way when this worker was fenced
  } else if (message.has_weights_chunk()) {
    const wire::WeightsChunk& weights = message.weights_chunk();
    if (!arrived_.IsNext(weights)) {
      trouble_ = fmt::format("is sent chunk {} of W({}), which is not the one that comes next",
                             weights.chunk(), weights.version());
      return;
    }
    arrived_.Mark(weights);
    std::vector<int64_t>& copy = copies_[weights.average() ? 2 : weights.version() % 2];
    copy.resize(job_.chunks().size(), -1);
    copy[weights.chunk()] = weights.version();
    DropEmpty();
  } else {
    TakeOrder(message);
  }
}

void ModelWorker::TakeOrder(const wire::ServerMessage& message) {
  if (message.has_enter()) {
    arrived_ = Arrivals(job_.chunks().size(), message.enter().version());
  } else if (message.has_assignment()) {
    share_.id = message.assignment().id();
    share_.nodes = NodesOf(message.assignment());
  } else if (message.has_train()) {
    TakeTrain(message.train());
  } else if (message.has_redo()) {
    const wire::Redo& redo = message.redo();
    auto later = std::ranges::find_if_not(orders_, &Order::urgent);
    if (said_ > 0 && later == orders_.begin()) {
      later = std::find_if_not(orders_.begin() + 1, orders_.end(),
                               [](const Order& order) { return order.urgent(); });
    }
    orders_.insert(later, {.kind = Order::Kind::kRedo,
                           .version = redo.step(),
                           .leases = {{redo.lease(), NodeOf(redo.subtree()), redo.arena()}},
                           .chunks = {redo.chunk().begin(), redo.chunk().end()}});
  } else if (message.has_fence()) {
    incarnation_ = message.fence().incarnation();
    arrived_ = {};
    orders_.clear();
    said_ = 0;
    ready_due_ = true;
  } else if (message.has_evaluate()) {
    const wire::Evaluate& evaluate = message.evaluate();
    orders_.push_back({.kind = Order::Kind::kEvaluate,
                       .version = evaluate.version(),
                       .block_size = evaluate.block_size(),
                       .blocks = {evaluate.block_begin(), evaluate.block_end()},
                       .set = evaluate.set(),
                       .average = evaluate.average()});
    DropEmpty();
  } else if (message.has_stop()) {
    stopped_ = true;
  }
}

void ModelWorker::TakeTrain(const wire::Train& train) {
  if (train.assignment() != share_.id) {
    trouble_ = fmt::format("is to do step {} by an assignment that it does not have", train.step());
  }
  Order order{.kind = Order::Kind::kTrain, .version = train.step()};
  for (const TreeNode& node : share_.nodes) {
    const size_t i = order.leases.size();
    order.leases.push_back({train.lease() + i, node, i});
  }
  orders_.push_back(std::move(order));
  DropEmpty();
}

// ---------------------------------------------------------------------------------- computing

size_t ModelWorker::SizeOf(const Order& order) const {
  if (order.kind == Order::Kind::kEvaluate) return static_cast<size_t>(order.blocks.size());
  size_t size = 0;
  for (const WorkLease& lease : order.leases) {
    size += static_cast<size_t>(Covers(lease.node, job_.plan().slices).size());
    size += order.kind == Order::Kind::kRedo ? order.chunks.size() : job_.chunks().size();
  }
  return size;
}

// An average is waited for even by who has no block to evaluate on it.
void ModelWorker::DropEmpty() {
  while (!orders_.empty() && SizeOf(orders_.front()) == said_ &&
         (!orders_.front().average || HasWeights(orders_.front()))) {
    orders_.pop_front();
    said_ = 0;
  }
}

bool ModelWorker::HasWeights(const Order& order) const {
  for (size_t c = 0; c < job_.chunks().size(); ++c) {
    if (!arrived_.Has(order.version, c, order.average)) return false;
  }
  return true;
}

bool ModelWorker::IsIntact(const Order& order) const {
  if (job_.bounds().remote) {
    const std::vector<int64_t>& copy = copies_[order.average ? 2 : order.version % 2];
    return std::ranges::all_of(copy, [&](int64_t version) { return version == order.version; });
  }
  const auto must = order.average ? job_.Average(order.version) : job_.Weights(order.version);
  return std::ranges::equal(weights_(order.version, order.average), must);
}

bool ModelWorker::CanSay() const {
  if (ended_ || !welcomed_) return false;
  if (ready_due_) return true;
  if (!orders_.empty() && HasWeights(orders_.front())) return true;
  return stopped_;  // Goodbye
}

wire::WorkerMessage ModelWorker::NewMessage() const {
  wire::WorkerMessage message;
  message.mutable_address()->set_job(job_.job());
  message.mutable_address()->set_rank(rank_);
  message.mutable_address()->set_incarnation(incarnation_);
  return message;
}

Saying ModelWorker::Hello() const {
  Saying saying{NewMessage(), {}, "says Hello"};
  wire::Hello& hello = *saying.message.mutable_hello();
  hello = job_.hello();
  if (wanted_) hello.set_rank(*wanted_);
  hello.set_process(number_ + 1);
  hello.set_pid(number_ + 1);
  hello.set_host("model");
  return saying;
}

Saying ModelWorker::Beat() const {
  Saying saying{NewMessage(), {}, ""};
  saying.message.mutable_beat();
  return saying;
}

Saying ModelWorker::Leave() {
  leaving_ = true;
  Saying saying{NewMessage(), {}, "says Leave"};
  saying.message.mutable_leave();
  return saying;
}

Saying ModelWorker::Say() {
  if (ready_due_) {
    ready_due_ = false;
    Saying saying{NewMessage(), {}, "says Ready"};
    saying.message.mutable_ready();
    return saying;
  }
  if (orders_.empty() || !HasWeights(orders_.front())) {
    Saying saying{NewMessage(), {}, "says Goodbye"};
    saying.message.mutable_goodbye();
    return saying;
  }
  Saying saying = SayOf(orders_.front(), said_);
  ++said_;
  DropEmpty();
  return saying;
}

// Of each lease the losses first, then the chunks, those of the last layers first.
Saying ModelWorker::SayOf(const Order& order, size_t at) {
  if (order.kind == Order::Kind::kEvaluate) {
    return BlockOf(order, order.blocks.begin + static_cast<int64_t>(at));
  }
  std::vector<uint32_t> chunks = order.chunks;
  if (order.kind == Order::Kind::kTrain) {
    for (uint32_t c = 0; c < job_.chunks().size(); ++c) chunks.push_back(c);
  }
  std::ranges::sort(chunks, std::greater());
  for (const WorkLease& lease : order.leases) {
    const Range slices = Covers(lease.node, job_.plan().slices);
    const auto losses = static_cast<size_t>(slices.size());
    if (at < losses) return LossOf(order, lease, slices.begin + static_cast<int64_t>(at));
    at -= losses;
    if (at < chunks.size()) return PartOf(order, lease, chunks[at]);
    at -= chunks.size();
  }
  MUSTER_CHECK(false);
  return {};
}

// Out of weights that were overwritten comes something else.
Saying ModelWorker::LossOf(const Order& order, const WorkLease& lease, int64_t slice) const {
  Saying saying{NewMessage(), {}, ""};
  const bool intact = IsIntact(order);
  wire::SliceLoss& loss = *saying.message.mutable_slice_loss();
  loss.set_step(order.version);
  loss.set_slice(static_cast<uint32_t>(slice));
  loss.set_samples(ModelJob::kSamplesPerSlice);
  loss.set_loss(job_.Loss(order.version, slice) + (intact ? 0 : 1));
  loss.set_correct(0);
  loss.set_lease(lease.id);
  saying.words = fmt::format("reports the loss of slice {} of step {} under lease {}{}", slice,
                             order.version, lease.id, intact ? "" : ", of overwritten weights");
  return saying;
}

Saying ModelWorker::PartOf(const Order& order, const WorkLease& lease, uint32_t chunk) {
  std::shared_ptr<Arena>& arena = arenas_.at(lease.arena);
  // What is sent is copied on its way.
  if (arena == nullptr || job_.bounds().remote) arena = std::make_shared<Arena>(job_.floats());
  const Chunk& range = job_.chunks()[chunk];
  const auto gradient = arena->floats().subspan(range.begin, range.floats());
  std::ranges::copy(job_.Gradient(order.version, lease.node).subspan(range.begin, range.floats()),
                    gradient.begin());
  const bool intact = IsIntact(order);
  if (!intact) gradient[0] += 0.5F;
  Saying saying{
      NewMessage(), {.data = gradient.data(), .bytes = gradient.size_bytes(), .owner = arena}, ""};
  wire::GradientPart& part = *saying.message.mutable_gradient_part();
  part.set_step(order.version);
  part.set_chunk(chunk);
  *part.mutable_subtree() = SubtreeOf(lease.node);
  part.set_lease(lease.id);
  part.set_arena(static_cast<uint32_t>(lease.arena));
  saying.words =
      fmt::format("pushes chunk {} of subtree {}.{} of step {} under lease {} from arena {}{}",
                  chunk, lease.node.level, lease.node.index, order.version, lease.id, lease.arena,
                  intact ? "" : ", of overwritten weights");
  return saying;
}

Saying ModelWorker::BlockOf(const Order& order, int64_t block) const {
  Saying saying{NewMessage(), {}, ""};
  const bool intact = IsIntact(order);
  wire::EvaluatedBlock& result = *saying.message.mutable_evaluated_block();
  result.set_version(order.version);
  result.set_block(static_cast<uint32_t>(block));
  result.set_samples(order.block_size);
  result.set_set(order.set);
  result.set_loss(ModelJob::BlockLoss(order.version, order.set, block) + (intact ? 0 : 1));
  result.set_correct(0);
  result.set_correct_top5(0);
  saying.words = fmt::format("reports block {} of the {} set of W({}){}", block, SetName(order.set),
                             order.version, intact ? "" : ", of overwritten weights");
  return saying;
}

}  // namespace muster::testing
