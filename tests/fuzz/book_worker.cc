#include "tests/fuzz/book_worker.h"

#include <algorithm>

#include "common/link/protocol.h"
#include "common/link/wire_values.h"
#include "tests/job/test_job.h"
#include "tests/ps/tree_sum_reference.h"

namespace muster::fuzz {

config::Config BookConfig(uint32_t workers, uint32_t slices) {
  config::Config config = testing::SmallConfig(workers, slices);
  config.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(6);
  config.mutable_cluster()->set_chunk_bytes(128);
  config.mutable_server()->set_threads(1);
  return config;
}

BookWorker::BookWorker(const config::Config& config, uint32_t rank) : config_(config), rank_(rank) {
  address_.set_job(JobOf(testing::TestToken()));
  address_.set_rank(rank);
}

wire::WorkerMessage BookWorker::Hello() const {
  static const wire::Hello hello = testing::WorkerOptions(config_, "", 0).hello;
  wire::WorkerMessage message;
  Address(message);
  *message.mutable_hello() = hello;
  message.mutable_hello()->set_token(testing::TestToken());
  message.mutable_hello()->set_protocol_version(kProtocolVersion);
  message.mutable_hello()->set_rank(rank_);
  message.mutable_hello()->set_process(1 + rank_);
  message.mutable_hello()->set_host("here");
  message.mutable_hello()->set_test_samples(config_.evaluation().every_steps() > 0 ? 25 : 0);
  message.mutable_hello()->set_validation_samples(config_.data().validation_fraction() > 0 ? 15
                                                                                           : 0);
  return message;
}

void BookWorker::Hear(const wire::ServerMessage& message) {
  if (message.has_address()) address_ = message.address();
  if (message.has_welcome()) {
    const wire::Welcome& welcome = message.welcome();
    plan_ = {.train_samples = welcome.train_samples(),
             .global_batch = welcome.global_batch(),
             .total_steps = welcome.total_steps(),
             .slices = welcome.slices(),
             .drop_last = welcome.drop_last()};
    chunk_end_ = {welcome.chunk_end().begin(), welcome.chunk_end().end()};
    lines_.emplace_back().mutable_ready();
  } else if (message.has_weights_chunk()) {
    if (!message.weights_chunk().average()) ++arrived_[message.weights_chunk().version()];
  } else if (message.has_reset()) {
    lines_.clear();
    address_.set_incarnation(message.reset().incarnation());
    lines_.emplace_back().mutable_ready();
  } else if (message.has_train()) {
    const wire::Train& train = message.train();
    uint32_t buffer = train.buffer();
    for (const TreeNode& node : NodesOf(train.subtree())) {
      Compute(train.step(), train.order(), buffer++, node,
              {train.chunk().begin(), train.chunk().end()});
    }
  } else if (message.has_evaluate()) {
    Evaluate(message.evaluate());
  } else if (message.has_stop()) {
    lines_.clear();
    lines_.emplace_back().mutable_goodbye();
  }
}

bool BookWorker::has_lines() const {
  if (lines_.empty()) return false;
  const wire::WorkerMessage& next = lines_.front();
  const int64_t version = next.has_slice_loss()      ? next.slice_loss().step()
                          : next.has_gradient_part() ? next.gradient_part().step()
                                                     : next.evaluated_block().version();
  const bool waits =
      next.has_slice_loss() || next.has_gradient_part() || next.has_evaluated_block();
  const auto found = arrived_.find(version);
  return !waits || (found != arrived_.end() && found->second >= chunk_end_.size());
}

wire::WorkerMessage BookWorker::Next() {
  wire::WorkerMessage message;
  if (!has_lines()) {
    message.mutable_heartbeat();
  } else {
    message = std::move(lines_.front());
    lines_.pop_front();
  }
  Address(message);
  return message;
}

void BookWorker::Compute(int64_t step, uint64_t order, uint32_t buffer, const TreeNode& node,
                         const std::vector<uint32_t>& chunks) {
  const Range slices = Covers(node, plan_.slices);
  for (int64_t slice = slices.begin; slice < slices.end; ++slice) {
    wire::SliceLoss& loss = *lines_.emplace_back().mutable_slice_loss();
    loss.set_step(step);
    loss.set_slice(static_cast<uint32_t>(slice));
    loss.set_samples(plan_.Slice(plan_.At(step), slice).size());
    loss.set_loss(static_cast<double>(step + slice));
    loss.set_order(order);
  }
  for (uint32_t chunk = 0; chunk < chunk_end_.size(); ++chunk) {
    if (!chunks.empty() && std::ranges::find(chunks, chunk) == chunks.end()) continue;
    wire::GradientPart& part = *lines_.emplace_back().mutable_gradient_part();
    part.set_step(step);
    part.set_chunk(chunk);
    *part.mutable_subtree() = SubtreeOf(node);
    part.set_order(order);
    part.set_buffer(buffer);
    if (!HasSamples(step, node)) part.set_empty(true);
  }
}

void BookWorker::Evaluate(const wire::Evaluate& evaluate) {
  const wire::Hello hello = Hello().hello();
  const int64_t samples =
      evaluate.set() == wire::VALIDATION ? hello.validation_samples() : hello.test_samples();
  constexpr uint32_t kMost = 100;  // the limit for a set of unchecked size
  const uint32_t end = std::min(evaluate.block_end(), evaluate.block_begin() + kMost);
  for (uint32_t b = evaluate.block_begin(); b < end; ++b) {
    wire::EvaluatedBlock& block = *lines_.emplace_back().mutable_evaluated_block();
    block.set_version(evaluate.version());
    block.set_set(evaluate.set());
    block.set_block(b);
    block.set_samples(
        std::min<int64_t>(evaluate.block_size(), samples - int64_t{b} * evaluate.block_size()));
    block.set_loss(b);
    block.set_correct(1);
  }
}

bool BookWorker::HasSamples(int64_t step, const TreeNode& node) const {
  const Range slices = Covers(node, plan_.slices);
  for (int64_t slice = slices.begin; slice < slices.end; ++slice) {
    if (!plan_.Slice(plan_.At(step), slice).empty()) return true;
  }
  return false;
}

std::vector<float> BookWorker::GradientOf(const wire::GradientPart& part) const {
  const TreeNode node = NodeOf(part.subtree());
  if (part.chunk() >= chunk_end_.size() || node.level > Root(plan_.slices).level ||
      part.step() < 0 || part.step() > plan_.total_steps) {
    return {};
  }
  const uint64_t begin = part.chunk() == 0 ? 0 : chunk_end_[part.chunk() - 1];
  std::vector<float> values(chunk_end_[part.chunk()] - begin);
  const Batch batch = plan_.At(part.step());
  bool any = false;
  for (size_t i = 0; i < values.size(); ++i) {
    // The last bits of sums depend on the order.
    values[i] = testing::TreeSumOf(
        [&](int64_t s) {
          return 0.1f * static_cast<float>(static_cast<int64_t>(begin + i) * 37 % 101 - 50 + s * 7 +
                                           part.step());
        },
        node, plan_.slices, [&](int64_t s) { return plan_.Slice(batch, s).empty(); }, &any);
  }
  if (!any) values.clear();
  return values;
}

}  // namespace muster::fuzz
