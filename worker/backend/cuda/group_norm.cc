#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

GroupShape ShapeOf(const OpRequest& request) {
  const auto& spec = std::get<GroupNormSpec>(request.layer.spec);
  const Shape& in = request.layer.input_shape;
  const int pixels = spec.per_pixel ? 1 : static_cast<int>(in.height * in.width);
  const int blocks = InputCount(request) / static_cast<int>(in.channels) / pixels;
  return {int64_t{blocks} * spec.groups, pixels, static_cast<int>(in.channels),
          static_cast<int>(spec.groups)};
}

template <typename T>
class GroupNormOp : public TypedOp<T> {
 public:
  explicit GroupNormOp(const OpRequest& request)
      : TypedOp<T>(request),
        epsilon_(std::get<GroupNormSpec>(request.layer.spec).epsilon),
        shape_(ShapeOf(request)),
        parts_(shape_.rows(), shape_.channels) {}

  size_t state_bytes() const override { return GroupBytes(); }
  // The sums over rows and, after them, the means of the gradients.
  size_t scratch_bytes() const override { return this->trains() ? SumsBytes() + GroupBytes() : 0; }

  void Forward(const ForwardArgs& args) override {
    GroupNorm(this->target(), shape_, epsilon_, args.weights, args.bias,
              this->options_.activation == Activation::kRelu, this->In(args.input),
              this->Out(args.output), GroupsIn(args.state));
  }

  void Backward(const BackwardArgs& args) override {
    const T *const in = this->In(args.input), *const out_gradient = this->In(args.output_gradient);
    const GroupState state = GroupsIn(args.state);
    GroupNormScaleGradient(this->target(), shape_, parts_, state, in, out_gradient,
                           static_cast<double*>(args.scratch), args.weights_gradient,
                           args.bias_gradient);
    if (!this->options_.input_gradient) return;
    const GroupState means = GroupsIn(static_cast<std::byte*>(args.scratch) + SumsBytes());
    GroupNormInputGradient(this->target(), shape_, state, means, args.weights, in, out_gradient,
                           this->Out(args.input_gradient));
  }

 private:
  size_t GroupBytes() const { return 2 * static_cast<size_t>(shape_.count) * sizeof(float); }
  size_t SumsBytes() const { return (parts_.scratch_bytes(2) + 63) / 64 * 64; }
  GroupState GroupsIn(void* memory) const {
    auto* const at = static_cast<float*>(memory);
    return {at, at + shape_.count};
  }

  const float epsilon_;
  const GroupShape shape_;
  const ColumnParts parts_;
};

}  // namespace

std::unique_ptr<Op> Make(const GroupNormSpec&, const OpRequest& request) {
  return MakeFor<Op, GroupNormOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
