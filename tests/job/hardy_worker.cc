#include "tests/job/hardy_worker.h"

#include <thread>

#include "common/base/error.h"

namespace muster::testing {

bool HardyWorker::Run() {
  try {
    return Follow(*Join()).completed;
  } catch (const Dies&) {
    return false;
  }
}

// A replacement may connect before the dead worker's end was noticed.
std::unique_ptr<Client> HardyWorker::Join() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (;;) {
    try {
      ClientOptions options = job_.OptionsFor(rank_.value_or(0));
      options.rank = rank_;
      options.start_s = 10;
      return std::make_unique<Client>(options);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kRefused || std::chrono::steady_clock::now() > until) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void HardyWorker::ComputeSlowly(const Order& order) {
  int64_t slices = 0;
  for (const OrderPart& part : order.parts) {
    slices += Covers(part.node, client().plan().slices).size();
  }
  slices_(order.version, slices);
  std::this_thread::sleep_for(slices * slice_time_);
  wire::StepTimes times;
  times.set_step(order.version);
  times.set_compute_ms(static_cast<double>((slices * slice_time_).count()));
  client().ReportTimes(times);
}

void HardyWorker::Reached(Point point, const Order& order) {
  at_(point, order.version, client());
  if (point == Point::kForward && slice_time_.count() > 0) ComputeSlowly(order);
}

// A loss scale is too large in the first step and in every third one.
float HardyWorker::Gradient(const Order& order, int64_t slice, size_t i) {
  const float gradient = Rough(order.version, slice, i);
  if (order.loss_scale == 1) return gradient;
  return InRangeOfHalf(gradient * order.loss_scale / (order.version % 3 == 2 ? 256 : 512));
}

// Depends on the weights.
double HardyWorker::Loss(const Order& order, int64_t /*slice*/) {
  return 1 + client().Weights(order.version)[0] * 1e-3;
}

void HardyWorker::FillBlock(const Order& order, int64_t block, wire::EvaluatedBlock& result) {
  if ((block + 1) * order.block_size >= job_.test_samples) {
    at_(Point::kLastBlock, order.version, client());
  }
  const auto of = order.average ? client().Average() : client().Weights(order.version);
  result.set_loss(static_cast<double>(block + 1) + static_cast<double>(of[0]) * 1e-3);
  result.set_correct(block % 3);
}

}  // namespace muster::testing
