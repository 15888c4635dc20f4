// Ops that normalize each pixel: LRN and softmax.
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

template <typename T>
class LrnOp : public TypedOp<T> {
 public:
  explicit LrnOp(const OpRequest& request)
      : TypedOp<T>(request),
        spec_(std::get<LrnSpec>(request.layer.spec)),
        channels_(static_cast<int>(request.layer.input_shape.channels)),
        count_(InputCount(request)) {}

  size_t scratch_bytes() const override {
    return this->trains() ? static_cast<size_t>(count_) * sizeof(float) : 0;
  }
  void Forward(const ForwardArgs& args) override {
    Lrn(this->target(), spec_, this->In(args.input), this->Out(args.output), count_, channels_);
  }
  void Backward(const BackwardArgs& args) override {
    LrnGradient(this->target(), spec_, this->In(args.input), this->In(args.output_gradient),
                this->Out(args.input_gradient), static_cast<float*>(args.scratch),
                this->options_.input_is_relu, count_, channels_);
  }

 private:
  const LrnSpec spec_;
  const int channels_, count_;
};

template <typename T>
class SoftmaxOp : public TypedOp<T> {
 public:
  explicit SoftmaxOp(const OpRequest& request)
      : TypedOp<T>(request),
        channels_(static_cast<int>(request.layer.input_shape.channels)),
        pixels_(InputCount(request) / channels_) {}

  void Forward(const ForwardArgs& args) override {
    Softmax(this->target(), this->In(args.input), this->Out(args.output), pixels_, channels_);
  }
  void Backward(const BackwardArgs& args) override {
    SoftmaxGradient(this->target(), this->In(args.output), this->In(args.output_gradient),
                    this->Out(args.input_gradient), pixels_, channels_);
  }

 private:
  const int channels_, pixels_;
};

}  // namespace

std::unique_ptr<Op> Make(const LrnSpec&, const OpRequest& request) {
  return MakeFor<Op, LrnOp>(request.card.activation_type(), request);
}
std::unique_ptr<Op> Make(const SoftmaxSpec&, const OpRequest& request) {
  return MakeFor<Op, SoftmaxOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
