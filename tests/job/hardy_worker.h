// A test's worker that follows every order, even within another one, and can be made to die, wait
// or leave at a named point.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "tests/job/test_job.h"

namespace muster::testing {

enum class Point {
  kJoined,      // welcomed, but has not sent Ready
  kReady,       // has reported that it is ready
  kForward,     // has the weights of a step, but has reported no loss
  kLosses,      // has reported all losses, and pushed nothing
  kHalfPushed,  // has pushed some chunks, which have been updated and published
  kPushed,      // has pushed everything
  kTakenOver,   // as kForward, but for work taken over from another worker
  kEvaluate,    // before its first block
  kEvaluated,   // has reported its second block
  kLastBlock,   // before the last block of the test set
  kReset,       // others have done its work
  kEnd,         // the server has sent Stop
};

// Thrown by a test at a point. The connection ends without a message.
struct Dies {};

class HardyWorker {
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
  struct WasReset {};

  void Join();
  bool Follow();
  void Train(const Order& order);
  void ComputeSlowly(const Order& order);
  void Evaluate(const Order& order);
  void TakeOver(const Order& order);
  void DoUrgent();
  void Await(int64_t version, bool average = false);
  void Losses(const Order& order, const OrderPart& part);
  void Push(const Order& order, const OrderPart& part);

  const TestJob& job_;
  const std::optional<uint32_t> rank_;
  const At at_;
  std::chrono::milliseconds slice_time_{0};
  Slices slices_ = [](int64_t, int64_t) {};
  std::unique_ptr<Client> client_;
};

}  // namespace muster::testing
