// A worker computes while its chunks travel, on any device. Without clocks: the server holds back
// what the worker must not wait for, or the device waits, during the backward pass, for what must
// have reached the server by then. Without overlap they wait for each other until they give up and
// the test fails.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>

#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "tests/data/test_sets.h"
#include "tests/job/test_job.h"
#include "worker/backend/backend_wrapper.h"
#include "worker/trainer/trainer.h"

namespace muster::testing {

inline constexpr std::chrono::seconds kOverlapPatience{10};
// The layer "hidden", whose chunks come first. "out" has the others.
inline constexpr int kLowLayer = 0;

// The progress of the worker's device and of the server's loop.
class OverlapSides {
 public:
  void LowForward() { Note(low_forwards_); }
  void HighGradient() { Note(high_gradients_); }
  bool LowForwardsReach(int64_t count) {
    const std::lock_guard lock(mutex_);
    return low_forwards_ >= count;
  }
  // Returns false if any wait timed out. After that none waits any more.
  bool AwaitHighGradients(int64_t count) {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return gave_up_ || high_gradients_ >= count; };
    if (!changed_.wait_for(lock, kOverlapPatience, there)) gave_up_ = true;
    return !gave_up_;
  }
  void GiveUp() {
    const std::lock_guard lock(mutex_);
    gave_up_ = true;
    changed_.notify_all();
  }
  bool gave_up() {
    const std::lock_guard lock(mutex_);
    return gave_up_;
  }

 private:
  void Note(int64_t& count) {
    const std::lock_guard lock(mutex_);
    ++count;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t low_forwards_ = 0, high_gradients_ = 0;
  bool gave_up_ = false;
};

// The server's link. It sends the weights of the chunks in `high` only after the lower layer has
// started its forward pass in that step, and counts their gradients.
class HoldingLink : public ServerLink {
 public:
  struct Options {
    std::set<uint32_t> high;
    bool hold = false;
    int64_t slices = 1;  // per step
    int64_t steps = 0;   // later versions are not used, so they are not held
  };
  HoldingLink(std::unique_ptr<ServerLink> link, Options options, OverlapSides& sides)
      : link_(std::move(link)), options_(std::move(options)), sides_(sides) {}

  void ShareWeights(SharedMemory& weight_buffers) override { link_->ShareWeights(weight_buffers); }
  void ShareGradients(PeerId peer, const GradientLayout& layout) override {
    link_->ShareGradients(peer, layout);
  }
  std::string endpoint() const override { return link_->endpoint(); }
  int fd() const override { return link_->fd(); }
  bool Pending() override { return link_->Pending(); }
  bool may_spin() const override { return link_->may_spin(); }
  bool PrepareToSleep() override { return held_.empty() && link_->PrepareToSleep(); }
  void Deliver() override { link_->Deliver(); }

  std::optional<FromWorker> Receive() override {
    ReleaseWhatIsDue();
    std::optional<FromWorker> event = link_->Receive();
    if (event && event->message.has_gradient_part() &&
        options_.high.contains(event->message.gradient_part().chunk())) {
      sides_.HighGradient();
    }
    return event;
  }
  SendResult Send(PeerId peer, const wire::ServerMessage& message,
                  const OutgoingTensor& tensor) override {
    const wire::WeightsChunk& chunk = message.weights_chunk();
    if (!options_.hold || !message.has_weights_chunk() || chunk.version() >= options_.steps ||
        !options_.high.contains(chunk.chunk())) {
      return link_->Send(peer, message, tensor);
    }
    held_.push_back({peer, message, tensor, std::chrono::steady_clock::now()});
    return SendResult::kQueued;
  }

 private:
  struct Held {
    PeerId peer;
    wire::ServerMessage message;
    OutgoingTensor tensor;
    std::chrono::steady_clock::time_point since;
  };

  void ReleaseWhatIsDue() {
    while (!held_.empty()) {
      const Held& first = held_.front();
      const int64_t version = first.message.weights_chunk().version();
      if (std::chrono::steady_clock::now() > first.since + kOverlapPatience) sides_.GiveUp();
      if (!sides_.gave_up() && !sides_.LowForwardsReach(version * options_.slices + 1)) return;
      (void)link_->Send(first.peer, first.message, first.tensor);
      held_.pop_front();
      if (held_.empty()) link_->Deliver();
    }
  }

  const std::unique_ptr<ServerLink> link_;
  const Options options_;
  OverlapSides& sides_;
  std::deque<Held> held_;
};

// Calls `work` in the order of the device's work.
using OnDevice = std::function<void(std::function<void()> work)>;

// An op of the lower layer. Reports the start of its forward pass, and calls `before_backward`
// before its backward pass.
class WatchedOp : public Op {
 public:
  WatchedOp(std::unique_ptr<Op> op, OverlapSides& sides, const OnDevice& on_device,
            const std::function<void()>& before_backward)
      : op_(std::move(op)),
        sides_(sides),
        on_device_(on_device),
        before_backward_(before_backward) {}

  size_t state_bytes() const override { return op_->state_bytes(); }
  size_t scratch_bytes() const override { return op_->scratch_bytes(); }
  void Forward(const ForwardArgs& args) override {
    on_device_([this] { sides_.LowForward(); });
    op_->Forward(args);
  }
  void Backward(const BackwardArgs& args) override {
    if (before_backward_) on_device_(before_backward_);
    op_->Backward(args);
  }

 private:
  const std::unique_ptr<Op> op_;
  OverlapSides& sides_;
  const OnDevice& on_device_;
  const std::function<void()>& before_backward_;
};

class OverlapBackend : public BackendWrapper {
 public:
  OverlapBackend(std::unique_ptr<Backend> backend, OverlapSides& sides, OnDevice on_device,
                 std::function<void()> before_backward)
      : BackendWrapper(std::move(backend)),
        sides_(sides),
        on_device_(std::move(on_device)),
        before_backward_(std::move(before_backward)) {}

  std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) override {
    std::unique_ptr<Op> op = BackendWrapper::MakeOp(layer, options);
    if (options.layer != kLowLayer) return op;
    return std::make_unique<WatchedOp>(std::move(op), sides_, on_device_, before_backward_);
  }

 private:
  OverlapSides& sides_;
  const OnDevice on_device_;
  const std::function<void()> before_backward_;
};

// The transport, and the number of slices that the only worker adds up in each step.
class OverlapTest : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  static constexpr int64_t kSteps = 4;

  OverlapTest() : slices_(std::get<1>(GetParam())), config_(SmallConfig(1, slices_)) {
    config_.mutable_run()->set_steps(kSteps);
    const Graph graph = BuildGraph(config_.model(), InputShape(config_.data()));
    const std::vector<Chunk> chunks = CutChunks(graph.layout(), config_.cluster());
    for (uint32_t c = 0; c < chunks.size(); ++c) {
      if (chunks[c].first_layer > kLowLayer) high_.insert(c);
    }
    EXPECT_GE(high_.size(), 2u);
    EXPECT_LT(high_.size(), chunks.size());
  }

  virtual std::unique_ptr<Backend> MakeBackend() = 0;
  virtual void OnDevice(std::function<void()> work) = 0;

  // Runs the whole job, with a real server and a real trainer.
  void Run(bool hold, const std::function<void()>& before_backward) {
    TestJob job(config_, std::get<0>(GetParam()), [&](std::unique_ptr<ServerLink> link) {
      return std::make_unique<HoldingLink>(
          std::move(link),
          HoldingLink::Options{.high = high_, .hold = hold, .slices = slices_, .steps = kSteps},
          sides_);
    });
    job.test_samples = 10;
    const Datasets data{std::make_unique<MemorySet>(TestJob::kSamples, Shape{1, 1, 3}),
                        std::make_unique<MemorySet>(job.test_samples, Shape{1, 1, 3})};
    OverlapBackend backend(
        MakeBackend(), sides_, [this](auto work) { OnDevice(std::move(work)); }, before_backward);
    {
      Client client(job.OptionsFor(0));
      Trainer(config_, job.graph(), data, backend, client).Run();
    }
    EXPECT_EQ(job.Finish().steps, kSteps);
  }

  // The first layer's forward pass needs only the first layer's weights.
  void ForwardBeginsBeforeTheLastChunksArrive() {
    Run(true, {});
    EXPECT_FALSE(sides_.gave_up()) << "the first layer waited for the weights of later ones";
  }
  // The first layer's backward pass runs after the last layer's gradients have reached the server.
  void GradientsArriveWhileBackwardGoesOn() {
    int64_t backwards = 0;
    Run(false, [&] {
      // The last slice's gradients are added to the others and pushed.
      if (++backwards % slices_ != 0) return;
      (void)sides_.AwaitHighGradients(backwards / slices_ * static_cast<int64_t>(high_.size()));
    });
    EXPECT_EQ(backwards, kSteps * slices_);
    EXPECT_FALSE(sides_.gave_up()) << "the last layer's gradients were pushed too late";
  }

  const uint32_t slices_;
  config::Config config_;
  std::set<uint32_t> high_;  // the chunks of the layers above kLowLayer
  OverlapSides sides_;
};

inline auto OverlapCases() {
  return ::testing::Combine(::testing::Values("ipc", "local"), ::testing::Values(1, 2));
}
inline std::string OverlapName(const ::testing::TestParamInfo<std::tuple<const char*, int>>& p) {
  return std::get<0>(p.param) + std::to_string(std::get<1>(p.param)) +
         (std::get<1>(p.param) == 1 ? "Slice" : "Slices");
}

}  // namespace muster::testing
