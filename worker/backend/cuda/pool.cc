#include <limits>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

PoolShape ShapeOf(const OpRequest& request) {
  const auto& spec = std::get<PoolSpec>(request.layer.spec);
  const Shape &in = request.layer.input_shape, &out = request.layer.output_shape;
  (void)InputCount(request);
  const auto narrow = [](int64_t size) { return static_cast<int>(size); };
  return {narrow(request.options.batch),
          narrow(in.height),
          narrow(in.width),
          narrow(out.height),
          narrow(out.width),
          narrow(in.channels),
          narrow(spec.kernel_height),
          narrow(spec.kernel_width),
          narrow(spec.stride_height),
          narrow(spec.stride_width),
          narrow(spec.pads.top),
          narrow(spec.pads.left)};
}

template <typename T, typename Index>
class MaxPoolOp : public TypedOp<T> {
 public:
  explicit MaxPoolOp(const OpRequest& request)
      : TypedOp<T>(request),
        shape_(ShapeOf(request)),
        outputs_(static_cast<size_t>(OutputCount(request))) {}

  size_t state_bytes() const override { return this->trains() ? outputs_ * sizeof(Index) : 0; }

  void Forward(const ForwardArgs& args) override {
    MaxPool(this->target(), shape_, this->In(args.input), this->Out(args.output),
            this->trains() ? static_cast<Index*>(args.state) : nullptr,
            this->options_.input_is_relu);
  }
  void Backward(const BackwardArgs& args) override {
    MaxPoolGradient(this->target(), shape_, this->In(args.output_gradient),
                    static_cast<const Index*>(args.state), this->Out(args.input_gradient));
  }

 private:
  const PoolShape shape_;
  const size_t outputs_;
};
// An index is a byte if that can count all places of the window. Its largest value means that no
// input receives the gradient.
template <typename T>
using SmallMaxPool = MaxPoolOp<T, uint8_t>;
template <typename T>
using LargeMaxPool = MaxPoolOp<T, int32_t>;

template <typename T>
class AvgPoolOp : public TypedOp<T> {
 public:
  explicit AvgPoolOp(const OpRequest& request) : TypedOp<T>(request), shape_(ShapeOf(request)) {
    (void)OutputCount(request);
  }
  void Forward(const ForwardArgs& args) override {
    AvgPool(this->target(), shape_, this->In(args.input), this->Out(args.output));
  }
  void Backward(const BackwardArgs& args) override {
    AvgPoolGradient(this->target(), shape_, this->In(args.output_gradient), this->ReluBefore(args),
                    this->Out(args.input_gradient));
  }

 private:
  const PoolShape shape_;
};

template <typename T>
class GlobalAvgPoolOp : public TypedOp<T> {
 public:
  explicit GlobalAvgPoolOp(const OpRequest& request)
      : TypedOp<T>(request),
        batch_(static_cast<int>(request.options.batch)),
        channels_(static_cast<int>(request.layer.input_shape.channels)),
        pixels_(InputCount(request) / batch_ / channels_) {}
  void Forward(const ForwardArgs& args) override {
    GlobalAvgPool(this->target(), this->In(args.input), this->Out(args.output), batch_, pixels_,
                  channels_);
  }
  void Backward(const BackwardArgs& args) override {
    GlobalAvgPoolGradient(this->target(), this->In(args.output_gradient),
                          this->Out(args.input_gradient), batch_, pixels_, channels_);
  }

 private:
  const int batch_, channels_, pixels_;
};

}  // namespace

std::unique_ptr<Op> Make(const PoolSpec& spec, const OpRequest& request) {
  const ElementType type = request.card.activation_type();
  if (spec.kind == PoolSpec::Kind::kAverage) return MakeFor<Op, AvgPoolOp>(type, request);
  if (spec.kernel_height * spec.kernel_width < std::numeric_limits<uint8_t>::max()) {
    return MakeFor<Op, SmallMaxPool>(type, request);
  }
  return MakeFor<Op, LargeMaxPool>(type, request);
}
std::unique_ptr<Op> Make(const GlobalAvgPoolSpec&, const OpRequest& request) {
  return MakeFor<Op, GlobalAvgPoolOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
