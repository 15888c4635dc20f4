#include "tests/protocol/model_worker.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "common/base/error.h"
#include "common/link/wire_values.h"
#include "ps/evaluate/evaluation.h"

namespace muster::testing {

// ---------------------------------------------------------------------------------- reading

void ModelWorker::Receive(const wire::ServerMessage& message) {
  if (message.has_heartbeat()) return;
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
  if (message.has_refused()) {  // another process has its rank
    ended_ = true;
  } else if (!welcomed_ && message.has_welcome()) {
    welcomed_ = true;
    ready_due_ = true;
    rank_ = address.rank();
    incarnation_ = address.incarnation();
    buffers_.resize(message.welcome().buffers());
  } else if (!welcomed_ || address.rank() != rank_ || address.incarnation() > incarnation_) {
    if (!message.has_stop()) trouble_ = "receives a message for another worker";
  } else if (address.incarnation() < incarnation_) {
    return;  // sent before this worker was reset
  } else if (message.has_weights_chunk()) {
    const wire::WeightsChunk& weights = message.weights_chunk();
    if (!arrived_.IsNext(weights)) {
      trouble_ = fmt::format("receives chunk {} of W({}), which is not the next one",
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
  if (message.has_activate()) {
    arrived_ = Arrivals(job_.chunks().size(), message.activate().version());
  } else if (message.has_train()) {
    TakeTrain(message.train());
  } else if (message.has_reset()) {
    incarnation_ = message.reset().incarnation();
    arrived_ = {};
    orders_.clear();
    said_ = 0;
    ready_due_ = true;
  } else if (message.has_evaluate()) {
    const wire::Evaluate& evaluate = message.evaluate();
    orders_.push_back({.evaluates = true,
                       .version = evaluate.version(),
                       .parts = {},
                       .chunks = {},
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
  ModelOrder order{.urgent = train.urgent(),
                   .version = train.step(),
                   .parts = {},
                   .chunks = {train.chunk().begin(), train.chunk().end()},
                   .blocks = {}};
  for (const TreeNode& node : NodesOf(train.subtree())) {
    const auto i = static_cast<uint32_t>(order.parts.size());
    order.parts.push_back({train.order(), node, train.buffer() + i});
  }
  for (uint32_t c = 0; train.chunk_size() == 0 && c < job_.chunks().size(); ++c) {
    order.chunks.push_back(c);
  }
  // Last layers first.
  std::ranges::sort(order.chunks, std::greater());
  auto later = orders_.end();
  if (order.urgent) {
    const auto begin = orders_.begin() + (said_ > 0 && !orders_.empty() ? 1 : 0);
    later =
        std::find_if_not(begin, orders_.end(), [](const ModelOrder& one) { return one.urgent; });
  }
  orders_.insert(later, std::move(order));
  DropEmpty();
}

// ---------------------------------------------------------------------------------- computing

size_t ModelWorker::SizeOf(const ModelOrder& order) const {
  if (order.evaluates) return static_cast<size_t>(order.blocks.size());
  size_t size = 0;
  for (const ModelOrder::Part& part : order.parts) {
    size += static_cast<size_t>(Covers(part.node, job_.plan().slices).size());
    size += order.chunks.size();
  }
  return size;
}

// Even a worker without a block to evaluate waits for an average.
void ModelWorker::DropEmpty() {
  while (!orders_.empty() && SizeOf(orders_.front()) == said_ &&
         (!orders_.front().average || HasWeights(orders_.front()))) {
    orders_.pop_front();
    said_ = 0;
  }
}

bool ModelWorker::HasWeights(const ModelOrder& order) const {
  for (size_t c = 0; c < job_.chunks().size(); ++c) {
    if (!arrived_.Has(order.version, c, order.average)) return false;
  }
  return true;
}

bool ModelWorker::IsIntact(const ModelOrder& order) const {
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

// For each part, the losses come before the chunks.
Saying ModelWorker::SayOf(const ModelOrder& order, size_t at) {
  if (order.evaluates) {
    return BlockOf(order, order.blocks.begin + static_cast<int64_t>(at));
  }
  for (const ModelOrder::Part& part : order.parts) {
    const Range slices = Covers(part.node, job_.plan().slices);
    const auto losses = static_cast<size_t>(slices.size());
    if (at < losses) return LossOf(order, part, slices.begin + static_cast<int64_t>(at));
    at -= losses;
    if (at < order.chunks.size()) return PartOf(order, part, order.chunks[at]);
    at -= order.chunks.size();
  }
  MUSTER_CHECK(false);
  return {};
}

// If the weights have been overwritten, the loss differs.
Saying ModelWorker::LossOf(const ModelOrder& order, const ModelOrder::Part& part,
                           int64_t slice) const {
  Saying saying{NewMessage(), {}, ""};
  const bool intact = IsIntact(order);
  wire::SliceLoss& loss = *saying.message.mutable_slice_loss();
  loss.set_step(order.version);
  loss.set_slice(static_cast<uint32_t>(slice));
  loss.set_samples(ModelJob::kSamplesPerSlice);
  loss.set_loss(job_.Loss(order.version, slice) + (intact ? 0 : 1));
  loss.set_correct(0);
  loss.set_order(part.order);
  saying.words = fmt::format("reports the loss of slice {} of step {} under order {}{}", slice,
                             order.version, part.order, intact ? "" : ", from overwritten weights");
  return saying;
}

Saying ModelWorker::PartOf(const ModelOrder& order, const ModelOrder::Part& part, uint32_t chunk) {
  std::shared_ptr<Arena>& buffer = buffers_.at(part.buffer);
  // Without shared memory the payload is a copy.
  if (buffer == nullptr || job_.bounds().remote) buffer = std::make_shared<Arena>(job_.floats());
  const Chunk& range = job_.chunks()[chunk];
  const auto gradient = buffer->floats().subspan(range.begin, range.floats());
  std::ranges::copy(job_.Gradient(order.version, part.node).subspan(range.begin, range.floats()),
                    gradient.begin());
  const bool intact = IsIntact(order);
  if (!intact) gradient[0] += 0.5F;
  Saying saying{
      NewMessage(), {.data = gradient.data(), .bytes = gradient.size_bytes(), .owner = buffer}, ""};
  wire::GradientPart& message = *saying.message.mutable_gradient_part();
  message.set_step(order.version);
  message.set_chunk(chunk);
  *message.mutable_subtree() = SubtreeOf(part.node);
  message.set_order(part.order);
  message.set_buffer(part.buffer);
  saying.words =
      fmt::format("pushes chunk {} of subtree {}.{} of step {} under order {} from buffer {}{}",
                  chunk, part.node.level, part.node.index, order.version, part.order, part.buffer,
                  intact ? "" : ", from overwritten weights");
  return saying;
}

Saying ModelWorker::BlockOf(const ModelOrder& order, int64_t block) const {
  Saying saying{NewMessage(), {}, ""};
  const bool intact = IsIntact(order);
  wire::EvaluatedBlock& result = *saying.message.mutable_evaluated_block();
  result.set_version(order.version);
  result.set_block(static_cast<uint32_t>(block));
  result.set_samples(order.block_size);
  result.set_set(order.set);
  result.set_loss(ModelJob::BlockLoss(order.version, order.set, block) + (intact ? 0 : 1));
  result.set_correct(0);
  saying.words = fmt::format("reports block {} of the {} set of W({}){}", block, SetName(order.set),
                             order.version, intact ? "" : ", from overwritten weights");
  return saying;
}

}  // namespace muster::testing
