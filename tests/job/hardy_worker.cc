#include "tests/job/hardy_worker.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "common/base/error.h"

namespace muster::testing {
namespace {

// A loss scale is too large in the first step and in every third one.
float Gradient(const Order& order, int64_t slice, size_t i) {
  const float gradient = Rough(order.version, slice, i);
  if (order.loss_scale == 1) return gradient;
  return InRangeOfHalf(gradient * order.loss_scale / (order.version % 3 == 2 ? 256 : 512));
}

}  // namespace

bool HardyWorker::Run() {
  try {
    Join();
    at_(Point::kJoined, 0, *client_);
    client_->ReportReady();
    at_(Point::kReady, 0, *client_);
    for (;;) {
      try {
        return Follow();
      } catch (const WasReset&) {
        at_(Point::kReset, 0, *client_);
        client_->ReportReady();
      }
    }
  } catch (const Dies&) {
    client_.reset();
    return false;
  }
}

// A replacement may connect before the dead worker's end was noticed.
void HardyWorker::Join() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (;;) {
    try {
      ClientOptions options = job_.OptionsFor(rank_.value_or(0));
      options.rank = rank_;
      options.start_s = 10;
      client_ = std::make_unique<Client>(options);
      return;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kRefused || std::chrono::steady_clock::now() > until) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

bool HardyWorker::Follow() {
  for (;;) {
    const Order order = client_->NextOrder();
    switch (order.kind) {
      case Order::Kind::kStop:
        at_(Point::kEnd, 0, *client_);
        return order.completed;
      case Order::Kind::kReset:
        throw WasReset();
      case Order::Kind::kEvaluate:
        Evaluate(order);
        break;
      case Order::Kind::kTrain:
        order.taken_over ? TakeOver(order) : Train(order);
    }
  }
}

void HardyWorker::DoUrgent() {
  while (const auto order = client_->NextUrgentOrder()) {
    if (order->kind == Order::Kind::kReset) throw WasReset();
    TakeOver(*order);
  }
}

void HardyWorker::Await(int64_t version, bool average) {
  const auto of = average ? Client::Of::kAverage : Client::Of::kWeights;
  for (size_t c = 0; c < client_->chunks().size();) {
    if (client_->AwaitChunk(version, c, Client::Wait::kForUrgent, of)) {
      ++c;
    } else {
      DoUrgent();
      c = 0;
    }
  }
}

void HardyWorker::Losses(const Order& order, const OrderPart& part) {
  const StepPlan& plan = client_->plan();
  const Range slices = Covers(part.node, plan.slices);
  for (int64_t s = slices.begin; s < slices.end; ++s) {
    // The loss depends on the weights.
    const double loss = 1 + client_->Weights(order.version)[0] * 1e-3;
    client_->ReportLoss(order.version, part, s, plan.Slice(plan.At(order.version), s).size(), loss,
                        0);
  }
}

void HardyWorker::Push(const Order& order, const OrderPart& part) {
  const StepPlan& plan = client_->plan();
  const Batch batch = plan.At(order.version);
  bool any = false;
  const std::span<float> gradient = client_->GradientBuffer(part.buffer);
  const auto pushes = [&](size_t chunk) {
    return order.chunks.empty() ||
           std::ranges::count(order.chunks, static_cast<uint32_t>(chunk)) > 0;
  };
  const size_t chunks = client_->chunks().size();
  for (size_t c = chunks; c-- > 0;) {
    if (!pushes(c)) continue;
    const ChunkRange& range = client_->chunks()[c];
    for (size_t i = range.begin; i < range.end; ++i) {
      gradient[i] = TreeSumOf([&](int64_t s) { return Gradient(order, s, i); }, part.node,
                              plan.slices, [&](int64_t s) { return plan.Slice(batch, s).empty(); },
                              &any, client_->terms().wire_type);
    }
    any ? client_->PushChunk(order.version, part, c) : client_->PushEmpty(order.version, part, c);
    if (c == chunks / 2) at_(Point::kHalfPushed, order.version, *client_);
  }
}

void HardyWorker::ComputeSlowly(const Order& order) {
  int64_t slices = 0;
  for (const OrderPart& part : order.parts) {
    slices += Covers(part.node, client_->plan().slices).size();
  }
  slices_(order.version, slices);
  std::this_thread::sleep_for(slices * slice_time_);
  wire::StepTimes times;
  times.set_step(order.version);
  times.set_compute_ms(static_cast<double>((slices * slice_time_).count()));
  client_->ReportTimes(times);
}

void HardyWorker::Train(const Order& order) {
  Await(order.version);
  at_(Point::kForward, order.version, *client_);
  if (slice_time_.count() > 0) ComputeSlowly(order);
  for (const OrderPart& part : order.parts) Losses(order, part);
  at_(Point::kLosses, order.version, *client_);
  for (const OrderPart& part : order.parts) Push(order, part);
  at_(Point::kPushed, order.version, *client_);
}

void HardyWorker::TakeOver(const Order& order) {
  for (size_t c = 0; c < client_->chunks().size(); ++c) {
    if (!client_->AwaitChunk(order.version, c)) return;  // reset, which is the next order
  }
  at_(Point::kTakenOver, order.version, *client_);
  Losses(order, order.parts.at(0));
  Push(order, order.parts.at(0));
}

void HardyWorker::Evaluate(const Order& order) {
  Await(order.version);
  if (order.average) Await(order.version, true);
  at_(Point::kEvaluate, order.version, *client_);
  for (int64_t b = order.blocks.begin; b < order.blocks.end; ++b) {
    if ((b + 1) * order.block_size >= job_.test_samples) {
      at_(Point::kLastBlock, order.version, *client_);
    }
    const auto of = order.average ? client_->Average() : client_->Weights(order.version);
    wire::EvaluatedBlock block;
    block.set_version(order.version);
    block.set_set(order.set);
    block.set_block(static_cast<uint32_t>(b));
    block.set_samples(order.block_size);
    block.set_loss(static_cast<double>(b + 1) + static_cast<double>(of[0]) * 1e-3);
    block.set_correct(b % 3);
    (void)client_->ReportEvaluated(block);
    if (b == order.blocks.begin + 1) at_(Point::kEvaluated, order.version, *client_);
  }
}

}  // namespace muster::testing
