// The self-test before the first step detects a device that computes one thing wrongly.
#include "worker/nn/self_test.h"

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <functional>
#include <utility>

#include "common/base/error.h"
#include "tests/nn/reference.h"
#include "worker/backend/backend_wrapper.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace muster {
namespace self_test_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kTolerance = 1e-3;
constexpr int64_t kBatch = 24;  // three times the samples that the reference computes

const char kLayers[] = R"(
    layer { name: "conv1" conv2d { filters: 8 kernel: 3 padding: SAME } }
    layer { name: "relu1" relu {} }
    layer { name: "norm" lrn { depth_radius: 2 bias: 1 alpha: 0.5 beta: 0.75 } }
    layer { name: "conv2" conv2d { filters: 8 kernel: 3 padding: SAME } }
    layer { name: "bn" batch_norm {} }
    layer { name: "relu2" relu {} }
    layer { name: "pool" avg_pool { kernel: 2 } }
    layer { name: "dense1" dense { units: 12 } }
    layer { name: "relu3" relu {} }
    layer { name: "logits" dense { units: 5 } }
    layer { name: "loss" softmax_cross_entropy {} })";

// A fault in one layer.
struct Fault {
  std::string layer;
  std::function<void(OpOptions&)> make = {};
  std::function<void(const ForwardArgs&)> forward = {};
  std::function<void(const BackwardArgs&)> backward = {};
  std::function<void(LossSums&)> sums = {};
  std::function<void(float* gradient)> loss_gradient = {};
};

template <typename Change, typename... Args>
void Apply(const Change& change, Args&&... args) {
  if (change) change(args...);
}

class FaultyOp : public Op {
 public:
  FaultyOp(std::unique_ptr<Op> op, const Fault& fault) : op_(std::move(op)), fault_(fault) {}
  size_t state_bytes() const override { return op_->state_bytes(); }
  size_t scratch_bytes() const override { return op_->scratch_bytes(); }
  void Forward(const ForwardArgs& args) override {
    op_->Forward(args);
    Apply(fault_.forward, args);
  }
  void Backward(const BackwardArgs& args) override {
    op_->Backward(args);
    Apply(fault_.backward, args);
  }

 private:
  const std::unique_ptr<Op> op_;
  const Fault& fault_;
};

class FaultyLoss : public LossOp {
 public:
  FaultyLoss(std::unique_ptr<LossOp> loss, const Fault& fault)
      : loss_(std::move(loss)), fault_(fault) {}
  size_t state_bytes() const override { return loss_->state_bytes(); }
  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    loss_->Forward(args, sums, predictions);
    Apply(fault_.sums, *sums);
  }
  void Backward(const LossArgs& args, float scale, void* gradient) override {
    loss_->Backward(args, scale, gradient);
    Apply(fault_.loss_gradient, static_cast<float*>(gradient));
  }

 private:
  const std::unique_ptr<LossOp> loss_;
  const Fault& fault_;
};

class FaultyBackend : public BackendWrapper {
 public:
  explicit FaultyBackend(const Fault& fault) : BackendWrapper(MakeCpuBackend(1)), fault_(fault) {}
  std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) override {
    if (layer.name != fault_.layer) return BackendWrapper::MakeOp(layer, options);
    OpOptions changed = options;
    Apply(fault_.make, changed);
    return std::make_unique<FaultyOp>(BackendWrapper::MakeOp(layer, changed), fault_);
  }
  std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) override {
    return std::make_unique<FaultyLoss>(BackendWrapper::MakeLoss(layer, options), fault_);
  }

 private:
  const Fault& fault_;
};

SelfTestResult ResultOf(const Fault& fault) {
  const Graph graph = reference::MakeGraph(kLayers, {6, 6, 3});
  FaultyBackend device(fault);
  const std::unique_ptr<Backend> cpu = MakeCpuBackend(1, {.winograd = false});
  return RunSelfTest(graph, kBatch, kTolerance, device, *cpu);
}

TEST(SelfTest, ADeviceThatComputesRightlyPasses) {
  const SelfTestResult result = ResultOf({});
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.operations, 8);  // all except the relus
}

TEST(SelfTest, WhatIsComputedWronglyIsNamed) {
  const auto spoil = [](float* numbers) { numbers[0] += 1; };
  const auto spoil_output = [&](const ForwardArgs& args) {
    spoil(static_cast<float*>(args.output));
  };
  const auto spoil_input_gradient = [&](const BackwardArgs& args) {
    spoil(static_cast<float*>(args.input_gradient));
  };
  // Each fault with the tensor in which it is detected.
  const std::pair<Fault, const char*> faults[] = {
      {{.layer = "conv1", .forward = spoil_output}, "the output"},
      {{.layer = "conv1", .make = [](OpOptions& o) { o.activation = Activation::kNone; }},
       "the output"},
      {{.layer = "conv1",
        .backward = [&](const BackwardArgs& args) { spoil(args.weights_gradient); }},
       "the gradient of the weights"},
      {{.layer = "conv2", .backward = spoil_input_gradient}, "the gradient of the input"},
      {{.layer = "norm", .forward = spoil_output}, "the output"},
      {{.layer = "norm", .make = [](OpOptions& o) { o.input_is_relu = false; }},
       "the gradient of the input"},
      {{.layer = "bn", .backward = [&](const BackwardArgs& args) { spoil(args.mean_statistic); }},
       "the mean"},
      {{.layer = "pool", .forward = spoil_output}, "the output"},
      {{.layer = "dense1", .make = [](OpOptions& o) { o.activation = Activation::kNone; }},
       "the output"},
      {{.layer = "dense1",
        .backward = [&](const BackwardArgs& args) { spoil(args.bias_gradient); }},
       "the gradient of the bias"},
      {{.layer = "logits", .make = [](OpOptions& o) { o.input_is_relu = false; }},
       "the gradient of the input"},
      {{.layer = "loss", .sums = [](LossSums& sums) { sums.loss *= 1.01; }},
       "the sum of the losses"},
      {{.layer = "loss", .sums = [](LossSums& sums) { sums.correct += 3; }},
       "the number of correct predictions"},
      {{.layer = "loss", .loss_gradient = spoil}, "the gradient of the logits"}};
  for (const auto& [fault, tensor] : faults) {
    EXPECT_THAT(ResultOf(fault).failure,
                AllOf(StartsWith(fmt::format("wrong result of layer {} (", fault.layer)),
                      HasSubstr(fmt::format("batch 24), {}", tensor))));
  }
}

TEST(SelfTest, WhatFailsIsNamed) {
  const auto lose = [](const auto&) { throw Error(ExitCode::kFailure, "the device is lost"); };
  for (const Fault& fault :
       {Fault{.layer = "conv1", .forward = lose}, Fault{.layer = "logits", .backward = lose},
        Fault{.layer = "loss", .sums = lose}}) {
    EXPECT_THAT(ResultOf(fault).failure,
                AllOf(StartsWith(fmt::format("error in layer {} (", fault.layer)),
                      HasSubstr("batch 24): the device is lost")));
  }
}

TEST(SelfTest, TooLittleMemoryIsNoFault) {
  const Fault fault{.layer = "conv2", .make = [](OpOptions&) {
                      throw OutOfDeviceMemory(ExitCode::kFailure, "out of memory");
                    }};
  EXPECT_THROW((void)ResultOf(fault), OutOfDeviceMemory);
}

// A barrier would wait for the missing threads.
TEST(CpuBackendTest, ATeamThatIsTooSmallIsRefused) {
  const int before = omp_get_max_active_levels();
  omp_set_max_active_levels(0);
  EXPECT_THROW(MakeCpuBackend(2), Error);
  EXPECT_NO_THROW(MakeCpuBackend(1));
  omp_set_max_active_levels(before);
  EXPECT_NO_THROW(MakeCpuBackend(2));
}

}  // namespace self_test_test
}  // namespace muster
