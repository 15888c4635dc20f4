#include <algorithm>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

template <typename T>
class BatchNormOp : public TypedOp<T> {
 public:
  explicit BatchNormOp(const OpRequest& request)
      : TypedOp<T>(request),
        spec_(std::get<BatchNormSpec>(request.layer.spec)),
        frozen_(request.layer.frozen),
        channels_(static_cast<int>(request.layer.input_shape.channels)),
        rows_(InputCount(request) / channels_),
        stride_((static_cast<size_t>(channels_) + 15) / 16 * 16),
        parts_(rows_, channels_) {}

  // The state is a NormState. Scratch holds the sums, followed by NormGradients.
  size_t state_bytes() const override { return 4 * stride_ * sizeof(float); }
  size_t scratch_bytes() const override { return SumsBytes() + 2 * stride_ * sizeof(float); }

  void Forward(const ForwardArgs& args) override {
    const NormState state = StateIn(args.state);
    if (this->trains() && !frozen_) {
      BatchStatistics(this->target(), parts_, this->In(args.input),
                      static_cast<double*>(args.scratch), spec_.epsilon, args.weights, state);
    } else {
      GivenStatistics(this->target(), args.running_mean, args.running_variance, spec_.epsilon,
                      args.weights, channels_, state);
    }
    Normalise(this->target(), state, args.bias, this->options_.activation, this->In(args.input),
              this->options_.fuse_add ? this->In(args.inputs[1]) : nullptr, this->Out(args.output),
              rows_, channels_);
  }

  void Backward(const BackwardArgs& args) override {
    // With an added value, only the output shows where the activation passed its argument. The
    // gradient of the sum is then also the gradient of the added value.
    const bool added = this->options_.fuse_add && this->options_.activation != Activation::kNone;
    T* const added_gradient = added ? this->Out(args.input_gradients[1]) : nullptr;
    const NormBackward norm = Describe(args, added);
    NormSums(this->target(), parts_, norm, this->In(args.input), this->In(args.output),
             this->In(args.output_gradient), added_gradient, static_cast<double*>(args.scratch));
    if (!this->options_.input_gradient) return;
    const bool has_dz = added_gradient != nullptr;
    NormInputGradient(this->target(), norm, this->In(args.input), this->In(args.output),
                      has_dz ? added_gradient : this->In(args.output_gradient), has_dz,
                      this->Out(args.input_gradient), rows_, channels_);
  }

 private:
  size_t SumsBytes() const { return (parts_.scratch_bytes(2) + 63) / 64 * 64; }
  NormState StateIn(void* state) const {
    auto* const at = static_cast<float*>(state);
    return {at, at + stride_, at + 2 * stride_, at + 3 * stride_};
  }
  NormBackward Describe(const BackwardArgs& args, bool from_output) const {
    auto* const behind =
        reinterpret_cast<float*>(static_cast<std::byte*>(args.scratch) + SumsBytes());
    return {.state = StateIn(args.state),
            .shift = args.bias,
            .activation = this->options_.activation,
            .from_output = from_output,
            .statistic_weight = args.statistic_weight,
            .unbiased = spec_.unbiased,
            .frozen = frozen_,
            .scale_gradient = args.weights_gradient,
            .shift_gradient = args.bias_gradient,
            .mean_statistic = args.mean_statistic,
            .variance_statistic = args.variance_statistic,
            .gradients = {behind, behind + stride_}};
  }

  const BatchNormSpec spec_;
  const bool frozen_;  // normalizes with the running statistics in training, too
  const int channels_, rows_;
  const size_t stride_;
  const ColumnParts parts_;
};

}  // namespace

std::unique_ptr<Op> Make(const BatchNormSpec&, const OpRequest& request) {
  return MakeFor<Op, BatchNormOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
