// A test's worker that can be made to die, wait or leave at a named point.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "tests/job/test_job.h"
#include "tests/job/test_worker.h"

namespace muster::testing {

// Thrown by a test at a point. The connection ends without a message.
struct Dies {};

class HardyWorker final : private TestWorker {
 public:
  using At = std::function<void(Point point, int64_t step, Client& client)>;

  HardyWorker(const TestJob& job, std::optional<uint32_t> rank, At at)
      : job_(job), rank_(rank), at_(std::move(at)) {}

  // Sleeps this long for each slice, before it reports any loss of a step, and reports this time.
  void TakesForASlice(std::chrono::milliseconds time) { slice_time_ = time; }
  // Called with the number of slices of the step.
  using Slices = std::function<void(int64_t step, int64_t slices)>;
  void TellsSlices(Slices slices) { slices_ = std::move(slices); }

  // Runs to the end of the job or the worker. Returns whether the run was completed. Retries
  // joining for a while if its rank is still taken.
  bool Run();

 private:
  std::unique_ptr<Client> Join();
  void ComputeSlowly(const Order& order);
  void Reached(Point point, const Order& order) override;
  float Gradient(const Order& order, int64_t slice, size_t i) override;
  double Loss(const Order& order, int64_t slice) override;
  void FillBlock(const Order& order, int64_t block, wire::EvaluatedBlock& result) override;

  const TestJob& job_;
  const std::optional<uint32_t> rank_;
  const At at_;
  std::chrono::milliseconds slice_time_{0};
  Slices slices_ = [](int64_t, int64_t) {};
};

}  // namespace muster::testing
