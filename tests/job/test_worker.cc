#include "tests/job/test_worker.h"

#include <algorithm>

#include "tests/ps/tree_sum_reference.h"

namespace muster::testing {

Order TestWorker::Follow(Client& client, const std::string& convolutions) {
  OrderFollower follower(client, *this);
  client_ = &client;
  follower_ = &follower;
  Reached(Point::kJoined, {.version = 0});
  client.ReportReady(convolutions);
  Reached(Point::kReady, {.version = 0});
  Order stop = follower.Run();
  Reached(Point::kEnd, {.version = 0});
  return stop;
}

std::vector<size_t> TestWorker::Sequence(size_t chunks) {
  std::vector<size_t> sequence;
  while (chunks > 0) sequence.push_back(--chunks);
  return sequence;
}

void TestWorker::Train(Order order) {
  follower_->AwaitAll(order);
  Reached(Point::kForward, order);
  ReportLosses(order);
  Reached(Point::kLosses, order);
  for (const OrderPart& part : order.parts) Push(order, part);
  Reached(Point::kPushed, order);
}

void TestWorker::TakeOver(Order order) {
  follower_->AwaitAll(order);
  Reached(Point::kTakenOver, order);
  ReportLosses(order);
  for (const OrderPart& part : order.parts) Push(order, part);
}

void TestWorker::ReportLosses(const Order& order) {
  const StepPlan& plan = client_->plan();
  for (const OrderPart& part : order.parts) {
    const Range slices = Covers(part.node, plan.slices);
    for (int64_t s = slices.begin; s < slices.end; ++s) {
      client_->ReportLoss(order.version, part, s, plan.Slice(plan.At(order.version), s).size(),
                          Loss(order, s), 0);
    }
  }
}

void TestWorker::Push(const Order& order, const OrderPart& part) {
  const StepPlan& plan = client_->plan();
  const Batch batch = plan.At(order.version);
  const std::span<float> gradient = client_->GradientBuffer(part.buffer);
  const std::vector<ChunkRange>& chunks = client_->chunks();
  bool any = false;
  for (const size_t c : Sequence(chunks.size())) {
    if (!order.chunks.empty() && std::ranges::count(order.chunks, c) == 0) continue;
    for (size_t i = chunks[c].begin; i < chunks[c].end; ++i) {
      gradient[i] = TreeSumOf([&](int64_t s) { return Gradient(order, s, i); }, part.node,
                              plan.slices, [&](int64_t s) { return plan.Slice(batch, s).empty(); },
                              &any, client_->terms().wire_type);
    }
    any ? client_->PushChunk(order.version, part, c) : client_->PushEmpty(order.version, part, c);
    if (c == chunks.size() / 2) Reached(Point::kHalfPushed, order);
  }
}

void TestWorker::Evaluate(const Order& order) {
  follower_->AwaitAll(order);
  if (order.average) follower_->AwaitAll(order, Client::Of::kAverage);
  Reached(Point::kEvaluate, order);
  for (int64_t b = order.blocks.begin; b < order.blocks.end; ++b) {
    wire::EvaluatedBlock block;
    block.set_version(order.version);
    block.set_set(order.set);
    block.set_block(static_cast<uint32_t>(b));
    block.set_samples(order.block_size);
    FillBlock(order, b, block);
    (void)client_->ReportEvaluated(block);
    if (b == order.blocks.begin + 1) Reached(Point::kEvaluated, order);
  }
}

}  // namespace muster::testing
