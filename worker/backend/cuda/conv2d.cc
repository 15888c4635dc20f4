// A convolution: each of its passes in the way that suits its shape. Nothing else decides, so that
// the bits are the same in every run.
#include <algorithm>

#include "worker/backend/cuda/convolution.h"

namespace muster::cuda {
namespace {

ConvolutionRequest Describe(const OpRequest& request) {
  const auto& spec = std::get<Conv2dSpec>(request.layer.spec);
  const Shape &in = request.layer.input_shape, &out = request.layer.output_shape;
  (void)InputCount(request);
  (void)OutputCount(request);
  const auto narrow = [](int64_t size) { return static_cast<int>(size); };
  return {.card = request.card,
          .shape = {.batch = narrow(request.options.batch),
                    .in_height = narrow(in.height),
                    .in_width = narrow(in.width),
                    .in_channels = narrow(in.channels),
                    .out_height = narrow(out.height),
                    .out_width = narrow(out.width),
                    .filters = narrow(spec.filters),
                    .groups = narrow(spec.groups),
                    .kernel_height = narrow(spec.kernel_height),
                    .kernel_width = narrow(spec.kernel_width),
                    .stride_height = narrow(spec.stride_height),
                    .stride_width = narrow(spec.stride_width),
                    .pad_top = narrow(spec.pads.top),
                    .pad_left = narrow(spec.pads.left)},
          .pads = spec.pads,
          .use_bias = spec.use_bias,
          .relu = request.options.activation == Activation::kRelu,
          .after_relu = request.options.input_is_relu};
}

template <typename T>
class Conv2dOp : public TypedOp<T> {
 public:
  explicit Conv2dOp(const OpRequest& request) : Conv2dOp(request, Describe(request)) {}

  size_t scratch_bytes() const override {
    const auto bytes = [](const auto& pass) { return pass ? pass->scratch_bytes() : 0; };
    return std::max({bytes(forward_), bytes(weights_gradient_), bytes(input_gradient_),
                     this->trains() && use_bias_ ? parts_.scratch_bytes(1) : 0});
  }
  void Forward(const ForwardArgs& args) override { forward_->Run(args); }
  void Backward(const BackwardArgs& args) override {
    if (use_bias_) {
      ColumnSums(this->target(), parts_, this->In(args.output_gradient),
                 static_cast<double*>(args.scratch), args.bias_gradient);
    }
    weights_gradient_->Run(args);
    if (input_gradient_) input_gradient_->Run(args);
  }

 private:
  Conv2dOp(const OpRequest& request, const ConvolutionRequest& c)
      : TypedOp<T>(request),
        use_bias_(c.use_bias),
        weights_(request.card, request.options, int64_t{c.shape.filters} * c.shape.patch(), 0),
        parts_(c.shape.batch * c.shape.out_pixels(), c.shape.filters) {
    forward_ = MakeDepthwiseForward<T>(c);
    if (!forward_) forward_ = MakeCudnnForward<T>(c, weights_);
    if (!forward_) forward_ = MakeGemmForward<T>(c, weights_);
    if (!this->trains()) return;
    weights_gradient_ = MakeDepthwiseWeightsGradient<T>(c);
    if (!weights_gradient_) weights_gradient_ = MakeCudnnWeightsGradient<T>(c);
    if (!weights_gradient_) weights_gradient_ = MakeGemmWeightsGradient<T>(c);
    if (!request.options.input_gradient) return;
    input_gradient_ = MakeDepthwiseInputGradient<T>(c);
    if (!input_gradient_) input_gradient_ = MakeCudnnInputGradient<T>(c, weights_);
    if (!input_gradient_) input_gradient_ = MakeGemmInputGradient<T>(c, weights_);
  }

  const bool use_bias_;
  const TypedWeights<T> weights_;
  const ColumnParts parts_;
  std::unique_ptr<ConvolutionForward> forward_;
  std::unique_ptr<ConvolutionBackward> weights_gradient_, input_gradient_;
};

}  // namespace

std::unique_ptr<Op> Make(const Conv2dSpec&, const OpRequest& request) {
  return MakeFor<Op, Conv2dOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
