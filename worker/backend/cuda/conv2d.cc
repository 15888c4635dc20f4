// A convolution whose passes each use the implementation that suits the shape. The choice depends
// only on the shape, so the bits are the same in every run.
#include <fmt/core.h>

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
  void Forward(const ForwardArgs& args) override {
    weights_.Convert(args.weights, nullptr);
    forward_->Run(args);
  }
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
    forward_ = Choose(
        "forward", c, [&] { return MakeDepthwiseForward<T>(c); },
        [&] { return MakeCudnnForward<T>(c, weights_); },
        [&] { return MakeGemmForward<T>(c, weights_); });
    if (!this->trains()) return;
    weights_gradient_ = Choose(
        "weights", c, [&] { return MakeDepthwiseWeightsGradient<T>(c); },
        [&] { return MakeCudnnWeightsGradient<T>(c); },
        [&] { return MakeGemmWeightsGradient<T>(c); });
    if (!request.options.input_gradient) return;
    input_gradient_ = Choose(
        "input", c, [&] { return MakeDepthwiseInputGradient<T>(c); },
        [&] { return MakeCudnnInputGradient<T>(c, weights_); },
        [&] { return MakeGemmInputGradient<T>(c, weights_); });
  }

  // Chooses the first implementation that supports the pass, in this order: own kernels, cuDNN,
  // cuBLAS.
  template <typename Own, typename ByCudnn, typename Gemm>
  static auto Choose(const char* pass, const ConvolutionRequest& c, const Own& own,
                     const ByCudnn& by_cudnn, const Gemm& gemm) {
    const char* way = "own";
    auto made = own();
    if (made == nullptr) {
      way = "cudnn 1";  // cuDNN's algorithm number, which is 1 for each pass
      made = by_cudnn();
    }
    if (made == nullptr) {
      way = "gemm";
      made = gemm();
    }
    c.card.convolutions().Record(ConvolutionKey(pass, c), way);
    return made;
  }

  const bool use_bias_;
  const TypedWeights<T> weights_;
  const ColumnParts parts_;
  std::unique_ptr<ConvolutionForward> forward_;
  std::unique_ptr<ConvolutionBackward> weights_gradient_, input_gradient_;
};

}  // namespace

std::string ConvolutionKey(const char* pass, const ConvolutionRequest& request) {
  const ConvShape& s = request.shape;
  std::string key = pass;
  for (const int number : {s.batch, s.in_height, s.in_width, s.in_channels, s.out_height,
                           s.out_width, s.filters, s.groups, s.kernel_height, s.kernel_width,
                           s.stride_height, s.stride_width, s.pad_top, s.pad_left}) {
    key += fmt::format(" {}", number);
  }
  return key + fmt::format(" {} {}", request.pads.bottom, request.pads.right);
}

std::unique_ptr<Op> Make(const Conv2dSpec&, const OpRequest& request) {
  return MakeFor<Op, Conv2dOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
