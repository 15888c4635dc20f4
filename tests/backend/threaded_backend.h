// A simulated device that is as different from the CPU as possible: its own memory, at addresses
// that fault on the host; a thread for each queue, with delays; and all calls return before their
// work is done. It uses the CPU backend's ops, so it must have the same bits.
//
// A missing wait for an event reads data that does not exist yet: new memory is full of NaNs.
// Mixing up host and device addresses also fails.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "worker/backend/backend.h"

namespace muster::testing {

struct ThreadedOptions {
  uint64_t seed = 1;
  // Each piece of work in a queue is delayed by a random time up to this, in microseconds.
  std::array<int, 3> delays = {200, 200, 200};  // compute, copy in, copy out
  // Changes the arguments of each op's Backward, to inject a mistake.
  std::function<void(BackwardArgs&)> mistake = {};
};

class ThreadedBackend : public Backend {
 public:
  explicit ThreadedBackend(const ThreadedOptions& options);
  ~ThreadedBackend() override;

  void Enter() override {}
  ElementType activation_type() const override { return ElementType::kFloat32; }
  bool shares_host_memory() const override { return false; }
  std::unique_ptr<DeviceBuffer> Allocate(size_t bytes) override;
  DeviceMemoryUse memory_use() const override { return {}; }
  std::unique_ptr<HostRegistration> Register(const HostMemory& memory) override;
  void CopyIn(void* device, const void* host, size_t bytes) override;
  void CopyOut(void* host, const void* device, size_t bytes) override;
  std::unique_ptr<Event> MakeEvent() override;
  void Record(Queue queue, Event& event) override;
  void Await(Queue queue, Event& event) override;
  void Drain() override;
  std::unique_ptr<WeightLayouts> MakeWeightLayouts() override;
  std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) override;
  std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) override;
  void Zero(void* to, size_t bytes) override;
  void ToActivations(void* to, const float* from, int64_t count) override;
  void ScalePixels(void* to, const uint8_t* from, int64_t count, const PixelScale& scale) override;
  void MirrorImages(void* to, const void* from, int64_t count, const Shape& shape) override;
  void AverageLogits(ElementType type, void* logits, const void* others, int64_t count) override;
  void AddGradients(void* to, const void* a, const void* b, const void* relu_output,
                    int64_t count) override;
  void RoundSlice(ElementType wire, float* values, size_t count) override;
  void AddSlices(ElementType wire, const float* a, const float* b, float* to,
                 size_t count) override;

  // The options, for the backend's ops.
  const ThreadedOptions& options() const { return options_; }
  void Push(Queue queue, std::function<void()> work);
  // Runs `work` in the compute thread without a delay, and waits for it.
  void OnDevice(const std::function<void()>& work);

 private:
  // A position in a queue, reached a single time.
  class Mark;
  class MarkEvent;
  struct Worker {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<bool, std::function<void()>>> work;  // true if delayed
    std::jthread thread;
  };

  void Loop(Queue queue, std::stop_token stop);
  void Push(Queue queue, bool delayed, std::function<void()> work);
  std::shared_ptr<Mark> PushMark(Queue queue);
  void Fail();
  void ThrowIfFailed();

  const ThreadedOptions options_;
  std::unique_ptr<Backend> cpu_;  // used by the compute thread
  std::mutex mutex_;
  std::exception_ptr failure_;  // the first one
  std::array<Worker, 3> workers_;
};

}  // namespace muster::testing
