#include "tests/backend/threaded_backend.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/base/random.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace muster::testing {
namespace {

constexpr std::chrono::seconds kPatience{30};

// Set in all device addresses, but never in a valid host address.
constexpr uintptr_t kAway = uintptr_t{1} << 60;

// The real location of device memory.
template <typename T>
T* Here(T* device) {
  if (device == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(device);
  if ((address & kAway) == 0) throw Error(ExitCode::kFailure, "the device got a host address");
  return reinterpret_cast<T*>(address & ~kAway);
}

void RequireHost(const void* host) {
  if ((reinterpret_cast<uintptr_t>(host) & kAway) != 0) {
    throw Error(ExitCode::kFailure, "a device address where a host address is expected");
  }
}

class AwayBuffer : public DeviceBuffer {
 public:
  explicit AwayBuffer(size_t bytes) : here_(AllocateAligned(bytes)) {
    std::memset(here_, 0xff, bytes);  // NaN, both as floats and as doubles
  }
  ~AwayBuffer() override { std::free(here_); }
  AwayBuffer(const AwayBuffer&) = delete;
  void* data() override {
    return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(here_) | kAway);
  }

 private:
  void* const here_;
};

class ThreadedLayouts : public WeightLayouts {
 public:
  ThreadedLayouts(ThreadedBackend& backend, std::unique_ptr<WeightLayouts> layouts)
      : backend_(backend), layouts_(std::move(layouts)) {}
  size_t bytes() const override { return layouts_->bytes(); }
  void Allocate() override {
    backend_.OnDevice([this] { layouts_->Allocate(); });
  }
  WeightLayouts* inner() { return layouts_.get(); }

 private:
  ThreadedBackend& backend_;
  const std::unique_ptr<WeightLayouts> layouts_;
};

// Queued work keeps the op alive.
class ThreadedOp : public Op {
 public:
  ThreadedOp(ThreadedBackend& backend, std::shared_ptr<Op> op)
      : backend_(backend), op_(std::move(op)) {}
  size_t state_bytes() const override { return op_->state_bytes(); }
  size_t scratch_bytes() const override { return op_->scratch_bytes(); }

  void Forward(const ForwardArgs& given) override {
    backend_.Push(Queue::kCompute, [op = op_, args = given,
                                    inputs = std::vector<const void*>(
                                        given.inputs.begin(), given.inputs.end())]() mutable {
      for (const void*& input : inputs) input = Here(input);
      args.inputs = inputs;
      for (const void** at : {&args.input}) *at = Here(*at);
      args.output = Here(args.output);
      for (const float** at :
           {&args.weights, &args.bias, &args.running_mean, &args.running_variance}) {
        *at = Here(*at);
      }
      args.state = Here(args.state);
      args.scratch = Here(args.scratch);
      args.sample_ids = Here(args.sample_ids);
      op->Forward(args);
    });
  }

  void Backward(const BackwardArgs& given) override {
    backend_.Push(Queue::kCompute,
                  [op = op_, args = given, mistake = backend_.options().mistake,
                   gradients = std::vector<void*>(given.input_gradients.begin(),
                                                  given.input_gradients.end())]() mutable {
                    for (void*& gradient : gradients) gradient = Here(gradient);
                    args.input_gradients = gradients;
                    for (const void** at : {&args.input, &args.output, &args.output_gradient}) {
                      *at = Here(*at);
                    }
                    for (void** at : {&args.input_gradient, &args.state, &args.scratch}) {
                      *at = Here(*at);
                    }
                    for (const float** at : {&args.weights, &args.bias}) *at = Here(*at);
                    for (float** at : {&args.weights_gradient, &args.bias_gradient,
                                       &args.mean_statistic, &args.variance_statistic}) {
                      *at = Here(*at);
                    }
                    if (mistake) mistake(args);
                    op->Backward(args);
                  });
  }

 private:
  ThreadedBackend& backend_;
  const std::shared_ptr<Op> op_;
};

class ThreadedLoss : public LossOp {
 public:
  ThreadedLoss(ThreadedBackend& backend, std::shared_ptr<LossOp> op)
      : backend_(backend), op_(std::move(op)) {}
  size_t state_bytes() const override { return op_->state_bytes(); }

  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    backend_.Push(Queue::kCompute, [op = op_, args, sums, predictions] {
      op->Forward(Here(args), testing::Here(sums), testing::Here(predictions));
    });
  }
  void Backward(const LossArgs& args, float scale, void* logits_gradient) override {
    backend_.Push(Queue::kCompute, [op = op_, args, scale, logits_gradient] {
      op->Backward(Here(args), scale, testing::Here(logits_gradient));
    });
  }

 private:
  static LossArgs Here(const LossArgs& args) {
    return {.logits = testing::Here(args.logits),
            .labels = testing::Here(args.labels),
            .state = testing::Here(args.state),
            .class_weights = testing::Here(args.class_weights),
            .share = args.share};
  }

  ThreadedBackend& backend_;
  const std::shared_ptr<LossOp> op_;
};

size_t Index(Queue queue) { return static_cast<size_t>(queue); }

}  // namespace

class ThreadedBackend::Mark {
 public:
  void Reach() {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    changed_.notify_all();
  }
  bool Wait(std::chrono::duration<double> limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

class ThreadedBackend::MarkEvent : public Event {
 public:
  explicit MarkEvent(ThreadedBackend& backend) : backend_(backend) {}
  bool IsDone() override { return Wait(0); }
  bool Wait(double seconds) override {
    backend_.ThrowIfFailed();
    const bool done = mark == nullptr || mark->Wait(std::chrono::duration<double>(seconds));
    backend_.ThrowIfFailed();
    return done;
  }
  std::shared_ptr<Mark> mark;  // null if never recorded

 private:
  ThreadedBackend& backend_;
};

ThreadedBackend::ThreadedBackend(const ThreadedOptions& options) : options_(options) {
  for (const Queue queue : {Queue::kCompute, Queue::kCopyIn, Queue::kCopyOut}) {
    workers_[Index(queue)].thread =
        std::jthread([this, queue](std::stop_token stop) { Loop(queue, stop); });
  }
  OnDevice([this] { cpu_ = MakeCpuBackend(1); });
}

ThreadedBackend::~ThreadedBackend() {
  Drain();
  for (Worker& worker : workers_) {
    worker.thread.request_stop();
    {
      const std::lock_guard lock(worker.mutex);
      worker.changed.notify_all();
    }
    worker.thread.join();
  }
}

void ThreadedBackend::Loop(Queue queue, std::stop_token stop) {
  Worker& worker = workers_[Index(queue)];
  const int longest = options_.delays[Index(queue)];
  for (uint32_t count = 0;; ++count) {
    std::pair<bool, std::function<void()>> next;
    {
      std::unique_lock lock(worker.mutex);
      worker.changed.wait(lock, [&] { return stop.stop_requested() || !worker.work.empty(); });
      if (worker.work.empty()) return;
      next = std::move(worker.work.front());
      worker.work.pop_front();
    }
    if (next.first && longest > 0) {
      const RandomStream random(options_.seed, RandomPurpose::kSynthetic,
                                static_cast<uint32_t>(Index(queue)), 0, count);
      std::this_thread::sleep_for(
          std::chrono::microseconds(random.Block(0)[0] % static_cast<uint32_t>(longest)));
    }
    try {
      next.second();
    } catch (...) {
      Fail();
    }
  }
}

void ThreadedBackend::Fail() {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::current_exception();
}

void ThreadedBackend::ThrowIfFailed() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadedBackend::Push(Queue queue, bool delayed, std::function<void()> work) {
  Worker& worker = workers_[Index(queue)];
  const std::lock_guard lock(worker.mutex);
  worker.work.emplace_back(delayed, std::move(work));
  worker.changed.notify_all();
}

void ThreadedBackend::Push(Queue queue, std::function<void()> work) {
  Push(queue, true, std::move(work));
}

std::shared_ptr<ThreadedBackend::Mark> ThreadedBackend::PushMark(Queue queue) {
  auto mark = std::make_shared<Mark>();
  Push(queue, false, [mark] { mark->Reach(); });
  return mark;
}

void ThreadedBackend::OnDevice(const std::function<void()>& work) {
  std::exception_ptr thrown;
  Push(Queue::kCompute, false, [&] {
    try {
      work();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  MUSTER_CHECK(PushMark(Queue::kCompute)->Wait(kPatience));
  if (thrown) std::rethrow_exception(thrown);
}

std::unique_ptr<DeviceBuffer> ThreadedBackend::Allocate(size_t bytes) {
  return std::make_unique<AwayBuffer>(bytes);
}

std::unique_ptr<HostRegistration> ThreadedBackend::Register(const HostMemory& memory) {
  RequireHost(memory.begin);
  return nullptr;
}

void ThreadedBackend::CopyIn(void* device, const void* host, size_t bytes) {
  RequireHost(host);
  Push(Queue::kCopyIn, [=] { std::memcpy(Here(device), host, bytes); });
}

void ThreadedBackend::CopyOut(void* host, const void* device, size_t bytes) {
  RequireHost(host);
  Push(Queue::kCopyOut, [=] { std::memcpy(host, Here(device), bytes); });
}

std::unique_ptr<Event> ThreadedBackend::MakeEvent() { return std::make_unique<MarkEvent>(*this); }

void ThreadedBackend::Record(Queue queue, Event& event) {
  static_cast<MarkEvent&>(event).mark = PushMark(queue);
}

void ThreadedBackend::Await(Queue queue, Event& event) {
  const std::shared_ptr<Mark> mark = static_cast<MarkEvent&>(event).mark;
  if (mark == nullptr) return;
  Push(queue, false, [mark] {
    if (!mark->Wait(kPatience)) throw Error(ExitCode::kDeadline, "a queue waited for too long");
  });
}

void ThreadedBackend::Drain() {
  for (const Queue queue : {Queue::kCompute, Queue::kCopyIn, Queue::kCopyOut}) {
    MUSTER_CHECK(PushMark(queue)->Wait(2 * kPatience));
  }
}

std::unique_ptr<WeightLayouts> ThreadedBackend::MakeWeightLayouts() {
  std::unique_ptr<WeightLayouts> layouts;
  OnDevice([&] { layouts = cpu_->MakeWeightLayouts(); });
  return std::make_unique<ThreadedLayouts>(*this, std::move(layouts));
}

std::unique_ptr<Op> ThreadedBackend::MakeOp(const Layer& layer, const OpOptions& options) {
  OpOptions inner = options;
  if (options.layouts) inner.layouts = static_cast<ThreadedLayouts*>(options.layouts)->inner();
  std::shared_ptr<Op> op;
  OnDevice([&] { op = cpu_->MakeOp(layer, inner); });
  return std::make_unique<ThreadedOp>(*this, std::move(op));
}

std::unique_ptr<LossOp> ThreadedBackend::MakeLoss(const Layer& layer, const OpOptions& options) {
  OpOptions inner = options;
  inner.layouts = nullptr;
  std::shared_ptr<LossOp> op;
  OnDevice([&] { op = cpu_->MakeLoss(layer, inner); });
  return std::make_unique<ThreadedLoss>(*this, std::move(op));
}

void ThreadedBackend::Zero(void* to, size_t bytes) {
  Push(Queue::kCompute, [=] { std::memset(Here(to), 0, bytes); });
}

void ThreadedBackend::ToActivations(void*, const float*, int64_t) {
  MUSTER_CHECK(!"activations are floats");
}

void ThreadedBackend::ScalePixels(void* to, const uint8_t* from, int64_t count,
                                  const PixelScale& scale) {
  Push(Queue::kCompute, [=, this] {
    const uint8_t* const bytes = Here(from);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t k = i % scale.channels;
      static_cast<float*>(Here(to))[i] =
          (static_cast<float>(bytes[i]) - scale.centre[k]) * scale.scale[k];
    }
  });
}

void ThreadedBackend::MirrorImages(void* to, const void* from, int64_t count, const Shape& shape) {
  Push(Queue::kCompute, [=, this] { cpu_->MirrorImages(Here(to), Here(from), count, shape); });
}

void ThreadedBackend::AverageLogits(ElementType type, void* logits, const void* others,
                                    int64_t count) {
  Push(Queue::kCompute,
       [=, this] { cpu_->AverageLogits(type, Here(logits), Here(others), count); });
}

void ThreadedBackend::AddGradients(void* to, const void* a, const void* b, const void* relu_output,
                                   int64_t count) {
  Push(Queue::kCompute,
       [=, this] { cpu_->AddGradients(Here(to), Here(a), Here(b), Here(relu_output), count); });
}

void ThreadedBackend::RoundSlice(ElementType wire, float* values, size_t count) {
  Push(Queue::kCompute, [=, this] { cpu_->RoundSlice(wire, Here(values), count); });
}

void ThreadedBackend::AddSlices(ElementType wire, const float* a, const float* b, float* to,
                                size_t count) {
  Push(Queue::kCompute, [=, this] { cpu_->AddSlices(wire, Here(a), Here(b), Here(to), count); });
}

}  // namespace muster::testing
