#include "tests/nn/host_facing.h"

#include <cstring>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "worker/backend/host_backend.h"
#include "worker/nn/plan.h"

namespace muster {
namespace {

constexpr double kPatience = 60;

// The arrays of one call. An address given twice is one array on the device, too. Host memory must
// stay valid until the host has waited, once, after queueing everything.
class Call {
 public:
  explicit Call(Backend& device)
      : device_(device), copied_in_(device.MakeEvent()), computed_(device.MakeEvent()) {}

  // Read() returns the device's copy of an input, Write() that of an output.
  const void* Read(const void* host, size_t bytes) { return Place(host, bytes, 0, true, false); }
  void* Write(void* host, size_t bytes) { return Place(host, bytes, 0, false, true); }
  // `host` has the backend's activation type.
  const void* ReadActivations(const void* host, int64_t count) {
    return Place(host, 0, count, true, false);
  }
  void* WriteActivations(void* host, int64_t count) { return Place(host, 0, count, false, true); }
  template <typename T>
  const T* ReadArray(const T* host, int64_t count) {
    return static_cast<const T*>(Read(host, static_cast<size_t>(count) * sizeof(T)));
  }
  template <typename T>
  T* WriteArray(T* host, int64_t count) {
    return static_cast<T*>(Write(host, static_cast<size_t>(count) * sizeof(T)));
  }

  // Copies results to the host after the op.
  void Finish() {
    device_.Record(Queue::kCompute, *computed_);
    device_.Await(Queue::kCopyOut, *computed_);
    for (auto& [host, array] : arrays_) {
      if (!array.written) continue;
      const bool as_is = array.activations == 0 || !narrow();
      if (!as_is) array.halves.resize(static_cast<size_t>(array.activations));
      void* const to = as_is ? const_cast<void*>(host) : array.halves.data();
      if (device_.shares_host_memory()) {
        std::memcpy(to, array.memory->data(), array.bytes);
      } else {
        device_.CopyOut(to, array.memory->data(), array.bytes);
      }
    }
    const auto copied = device_.MakeEvent();
    device_.Record(Queue::kCopyOut, *copied);
    MUSTER_CHECK(copied->Wait(kPatience));
    for (auto& [host, array] : arrays_) {
      if (!array.written || array.activations == 0 || !narrow()) continue;
      FromHalves(device_.activation_type(), array.halves,
                 static_cast<float*>(const_cast<void*>(host)));
    }
    device_.Drain();
  }

 private:
  struct Array {
    std::unique_ptr<DeviceBuffer> memory;
    size_t bytes = 0;
    int64_t activations = 0;
    bool written = false;
    std::vector<uint16_t> halves;  // the converted values if the types differ
  };

  bool narrow() const { return device_.activation_type() != ElementType::kFloat32; }

  void* Place(const void* host, size_t bytes, int64_t activations, bool read, bool written) {
    if (host == nullptr) return nullptr;
    if (activations > 0) {
      bytes = static_cast<size_t>(activations) * BytesOf(device_.activation_type());
    }
    if (bytes == 0) return nullptr;
    Array& array = arrays_[host];
    if (array.memory == nullptr) {
      array = {device_.Allocate(bytes), bytes, activations, written, {}};
      if (read) Fill(array, host);
    }
    MUSTER_CHECK(array.bytes == bytes && array.activations == activations);
    array.written |= written;
    return array.memory->data();
  }

  void Fill(Array& array, const void* host) {
    if (array.activations > 0 && narrow()) {
      const auto count = static_cast<size_t>(array.activations);
      array.halves.resize(count);
      ToHalves(device_.activation_type(), {static_cast<const float*>(host), count},
               array.halves.data());
      host = array.halves.data();
    }
    if (device_.shares_host_memory()) {
      std::memcpy(array.memory->data(), host, array.bytes);
      return;
    }
    device_.CopyIn(array.memory->data(), host, array.bytes);
    device_.Record(Queue::kCopyIn, *copied_in_);
    device_.Await(Queue::kCompute, *copied_in_);
  }

  Backend& device_;
  const std::unique_ptr<Event> copied_in_, computed_;
  std::map<const void*, Array> arrays_;
};

// The sizes of an op's arrays, in elements.
struct Sizes {
  Sizes(const Layer& layer, const OpOptions& options)
      : batch(options.batch),
        input(options.batch * layer.input_shape.elements()),
        output(options.batch * layer.output_shape.elements()),
        channels(layer.input_shape.channels),
        classes(channels + layer.first_class()) {
    if (const auto* conv = std::get_if<Conv2dSpec>(&layer.spec)) {
      bias = conv->use_bias ? conv->filters : 0;
      weights = conv->filters * conv->kernel_height * conv->kernel_width * channels / conv->groups;
    } else if (const auto* dense = std::get_if<DenseSpec>(&layer.spec)) {
      bias = dense->use_bias ? dense->units : 0;
      weights = dense->units * layer.input_shape.elements();
    } else if (layer.scale >= 0) {
      weights = bias = channels;
    }
    if (layer.running_mean >= 0) statistics = channels;
    if (const auto* concat = std::get_if<ConcatSpec>(&layer.spec)) {
      for (const int64_t some : concat->channels) inputs.push_back(input / channels * some);
    }
  }
  int64_t Input(size_t j) const { return inputs.empty() ? input : inputs[j]; }

  int64_t batch, input, output, channels, classes, weights = 0, bias = 0, statistics = 0;
  std::vector<int64_t> inputs;  // concat
};

class HostFacingOp : public Op {
 public:
  HostFacingOp(Backend& device, const Layer& layer, const OpOptions& options)
      : device_(device), sizes_(layer, options), op_(device.MakeOp(layer, options)) {
    PlanStep step;
    step.activation = options.activation;
    step.fuse_add = options.fuse_add;
    reads_input_ = BackwardReadsInput(layer, options.input_is_relu);
    reads_output_ = BackwardReadsOutput(layer, step, options.input_is_relu);
    if (op_->state_bytes() > 0) state_ = device.Allocate(op_->state_bytes());
    if (op_->scratch_bytes() > 0) scratch_ = device.Allocate(op_->scratch_bytes());
  }
  size_t state_bytes() const override { return op_->state_bytes(); }
  size_t scratch_bytes() const override { return op_->scratch_bytes(); }

  void Forward(const ForwardArgs& given) override {
    Call call(device_);
    std::vector<const void*> inputs;
    for (size_t j = 0; j < given.inputs.size(); ++j) {
      inputs.push_back(call.ReadActivations(given.inputs[j], sizes_.Input(j)));
    }
    ForwardArgs args = given;
    args.input = call.ReadActivations(given.input, sizes_.input);
    args.inputs = inputs;
    args.output = call.WriteActivations(given.output, sizes_.output);
    args.weights = call.ReadArray(given.weights, sizes_.weights);
    args.bias = call.ReadArray(given.bias, sizes_.bias);
    args.running_mean = call.ReadArray(given.running_mean, sizes_.statistics);
    args.running_variance = call.ReadArray(given.running_variance, sizes_.statistics);
    args.sample_ids = call.ReadArray(given.sample_ids, sizes_.batch);
    args.state = At(state_);
    args.scratch = At(scratch_);
    op_->Forward(args);
    call.Finish();
  }

  void Backward(const BackwardArgs& given) override {
    Call call(device_);
    BackwardArgs args = given;
    // An input that the op does not read may be null.
    args.input = reads_input_ ? call.ReadActivations(given.input, sizes_.input) : nullptr;
    args.output = reads_output_ ? call.ReadActivations(given.output, sizes_.output) : nullptr;
    args.output_gradient = call.ReadActivations(given.output_gradient, sizes_.output);
    std::vector<void*> gradients;
    for (size_t j = 0; j < given.input_gradients.size(); ++j) {
      gradients.push_back(call.WriteActivations(given.input_gradients[j], sizes_.Input(j)));
    }
    args.input_gradients = gradients;
    args.input_gradient = call.WriteActivations(given.input_gradient, sizes_.input);
    args.weights = call.ReadArray(given.weights, sizes_.weights);
    args.bias = call.ReadArray(given.bias, sizes_.bias);
    args.weights_gradient = call.WriteArray(given.weights_gradient, sizes_.weights);
    args.bias_gradient = call.WriteArray(given.bias_gradient, sizes_.bias);
    args.mean_statistic = call.WriteArray(given.mean_statistic, sizes_.statistics);
    args.variance_statistic = call.WriteArray(given.variance_statistic, sizes_.statistics);
    args.state = At(state_);
    args.scratch = At(scratch_);
    op_->Backward(args);
    call.Finish();
  }

 private:
  static void* At(const std::unique_ptr<DeviceBuffer>& memory) {
    return memory == nullptr ? nullptr : memory->data();
  }

  Backend& device_;
  const Sizes sizes_;
  const std::unique_ptr<Op> op_;
  bool reads_input_ = true, reads_output_ = true;
  std::unique_ptr<DeviceBuffer> state_, scratch_;
};

class HostFacingLoss : public LossOp {
 public:
  HostFacingLoss(Backend& device, const Layer& layer, const OpOptions& options)
      : device_(device), sizes_(layer, options), op_(device.MakeLoss(layer, options)) {
    if (op_->state_bytes() > 0) state_ = device.Allocate(op_->state_bytes());
  }
  size_t state_bytes() const override { return op_->state_bytes(); }
  void Forward(const LossArgs& given, LossSums* sums, int32_t* predictions) override {
    Call call(device_);
    op_->Forward(Arguments(call, given), call.WriteArray(sums, 1),
                 call.WriteArray(predictions, sizes_.batch));
    call.Finish();
  }
  void Backward(const LossArgs& given, float scale, void* logits_gradient) override {
    Call call(device_);
    op_->Backward(Arguments(call, given), scale,
                  call.WriteActivations(logits_gradient, sizes_.input));
    call.Finish();
  }

 private:
  LossArgs Arguments(Call& call, const LossArgs& given) {
    return {.logits = call.ReadActivations(given.logits, sizes_.input),
            .labels = call.ReadArray(given.labels, sizes_.batch),
            .state = state_ == nullptr ? nullptr : state_->data(),
            .class_weights = call.ReadArray(given.class_weights, sizes_.classes),
            .share = given.share};
  }

  Backend& device_;
  const Sizes sizes_;
  const std::unique_ptr<LossOp> op_;
  std::unique_ptr<DeviceBuffer> state_;
};

class HostFacing : public HostBackend {
 public:
  explicit HostFacing(std::shared_ptr<Backend> device) : device_(std::move(device)) {}

  void Enter() override { device_->Enter(); }
  ElementType activation_type() const override { return ElementType::kFloat32; }
  void ToActivations(void*, const float*, int64_t) override { MUSTER_CHECK(!"they are floats"); }
  std::unique_ptr<WeightLayouts> MakeWeightLayouts() override {
    return device_->MakeWeightLayouts();
  }
  std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) override {
    return std::make_unique<HostFacingOp>(*device_, layer, options);
  }
  std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) override {
    return std::make_unique<HostFacingLoss>(*device_, layer, options);
  }
  void MirrorImages(void* to, const void* from, int64_t count, const Shape& shape) override {
    Call call(*device_);
    const int64_t all = count * shape.elements();
    const void* const in = call.ReadActivations(from, all);
    device_->MirrorImages(call.WriteActivations(to, all), in, count, shape);
    call.Finish();
  }
  void AverageLogits(ElementType type, void* logits, const void* others, int64_t count) override {
    MUSTER_CHECK(type == ElementType::kFloat32);
    Call call(*device_);
    const void* const in = call.ReadActivations(others, count);
    (void)call.ReadActivations(logits, count);
    device_->AverageLogits(device_->activation_type(), call.WriteActivations(logits, count), in,
                           count);
    call.Finish();
  }
  void AddGradients(void* to, const void* a, const void* b, const void* relu_output,
                    int64_t count) override {
    Call call(*device_);
    const void *const in_a = call.ReadActivations(a, count),
                      *const in_b = call.ReadActivations(b, count),
                      *const relu = call.ReadActivations(relu_output, count);
    device_->AddGradients(call.WriteActivations(to, count), in_a, in_b, relu, count);
    call.Finish();
  }
  void RoundSlice(ElementType wire, float* values, size_t count) override {
    Call call(*device_);
    (void)call.ReadArray(values, static_cast<int64_t>(count));
    device_->RoundSlice(wire, call.WriteArray(values, static_cast<int64_t>(count)), count);
    call.Finish();
  }
  void AddSlices(ElementType wire, const float* a, const float* b, float* to,
                 size_t count) override {
    Call call(*device_);
    const auto n = static_cast<int64_t>(count);
    const float *const in_a = call.ReadArray(a, n), *const in_b = call.ReadArray(b, n);
    device_->AddSlices(wire, in_a, in_b, call.WriteArray(to, n), count);
    call.Finish();
  }

 private:
  const std::shared_ptr<Backend> device_;
};

}  // namespace

std::unique_ptr<Backend> MakeHostFacing(std::shared_ptr<Backend> device) {
  return std::make_unique<HostFacing>(std::move(device));
}

}  // namespace muster
