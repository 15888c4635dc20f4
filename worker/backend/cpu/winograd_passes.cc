// Convolution passes by Winograd's F(2x2, 3x3), and the choice of convolutions that use it.
#include "worker/backend/cpu/convolution_passes.h"
#include "worker/backend/cpu/typed_op.h"
#include "worker/backend/cpu/weight_layouts.h"
#include "worker/backend/cpu/winograd_convolution.h"
#include "worker/backend/cpu/winograd_gradient.h"
#include "worker/backend/cpu/winograd_weights.h"

namespace muster::cpu {
namespace {

using winograd::TransformedWeights;

class WinogradForward : public ForwardPass {
 public:
  WinogradForward(const Layer& layer, const OpOptions& options, CpuWeightLayouts& layouts)
      : spec_(std::get<Conv2dSpec>(layer.spec)),
        relu_(options.activation == Activation::kRelu),
        convolution_(options.batch, layer.input_shape, layer.output_shape, spec_.pads.top,
                     spec_.pads.left),
        weights_(layouts.Transformed(options.layer, layer.input_shape.channels, spec_.filters,
                                     TransformedWeights::Use::kForward)) {}
  size_t scratch_floats() const override { return convolution_.scratch_floats(); }
  void Run(const ForwardArgs& args) override {
    weights_.Update(args.weights, args.weights_version);
    convolution_.Run(Floats(args.input), weights_,
                     {.bias = spec_.use_bias ? args.bias : nullptr, .relu = relu_},
                     Floats(args.output), Floats(args.scratch));
  }

 private:
  const Conv2dSpec spec_;
  const bool relu_;
  const winograd::Convolution convolution_;
  TransformedWeights& weights_;
};

// dx(y, x) = Σ dy(y + top - i, x + left - j) w(i, j): a convolution with the rotated filter, padded
// by 2 - top and 2 - left.
class WinogradBackwardData : public BackwardPass {
 public:
  WinogradBackwardData(const Layer& layer, const OpOptions& options, CpuWeightLayouts& layouts)
      : WinogradBackwardData(layer, options, std::get<Conv2dSpec>(layer.spec), layouts) {}
  size_t scratch_floats() const override { return convolution_.scratch_floats(); }
  void Run(const BackwardArgs& args) override {
    weights_.Update(args.weights, args.weights_version);
    convolution_.Run(Floats(args.output_gradient), weights_,
                     {.mask = input_is_relu_ ? Floats(args.input) : nullptr},
                     Floats(args.input_gradient), Floats(args.scratch));
  }

 private:
  WinogradBackwardData(const Layer& layer, const OpOptions& options, const Conv2dSpec& spec,
                       CpuWeightLayouts& layouts)
      : input_is_relu_(options.input_is_relu),
        convolution_(options.batch, layer.output_shape, layer.input_shape, 2 - spec.pads.top,
                     2 - spec.pads.left),
        weights_(layouts.Transformed(options.layer, layer.input_shape.channels, spec.filters,
                                     TransformedWeights::Use::kBackwardData)) {}

  const bool input_is_relu_;
  const winograd::Convolution convolution_;
  TransformedWeights& weights_;
};

class WinogradBackwardWeights : public BackwardPass {
 public:
  WinogradBackwardWeights(const Layer& layer, const OpOptions& options)
      : spec_(std::get<Conv2dSpec>(layer.spec)),
        gradient_(options.batch, layer.input_shape, layer.output_shape, spec_.pads.top,
                  spec_.pads.left) {}
  size_t scratch_floats() const override { return gradient_.scratch_floats(); }
  void Run(const BackwardArgs& args) override {
    gradient_.Run(Floats(args.input), Floats(args.output_gradient), args.weights_gradient,
                  spec_.use_bias ? args.bias_gradient : nullptr, Floats(args.scratch));
  }

 private:
  const Conv2dSpec spec_;
  const winograd::WeightsGradient gradient_;
};

}  // namespace

// Measured on Zen 3 against oneDNN 2.6's AVX2 kernels. With 8 channels the transforms cost as much
// as the products save. With fewer than 16 tiles, transforming the weights costs more than
// everything else, noticeably from 512 channels on. Even 2x2 images gain, although more than half
// of a tile lies outside them. With AVX-512 both algorithms are twice as fast per cycle.
bool WinogradFits(const Layer& layer, int64_t batch) {
  constexpr int64_t kLeastChannels = 16, kLeastTiles = 16;
  const auto& spec = std::get<Conv2dSpec>(layer.spec);
  const auto fits = [](int64_t channels) {
    return channels >= kLeastChannels && channels % kLanes == 0;
  };
  return spec.kernel_height == 3 && spec.kernel_width == 3 && spec.stride_height == 1 &&
         spec.stride_width == 1 && spec.groups == 1 && fits(layer.input_shape.channels) &&
         fits(spec.filters) &&
         winograd::TileGrid(batch, layer.output_shape).count() >= kLeastTiles &&
         __builtin_cpu_supports("avx2");
}

std::unique_ptr<ForwardPass> MakeWinogradForward(const Layer& layer, const OpOptions& options,
                                                 CpuWeightLayouts& layouts) {
  return std::make_unique<WinogradForward>(layer, options, layouts);
}

std::unique_ptr<BackwardPass> MakeWinogradBackwardData(const Layer& layer, const OpOptions& options,
                                                       CpuWeightLayouts& layouts) {
  return std::make_unique<WinogradBackwardData>(layer, options, layouts);
}

std::unique_ptr<BackwardPass> MakeWinogradBackwardWeights(const Layer& layer,
                                                          const OpOptions& options) {
  return std::make_unique<WinogradBackwardWeights>(layer, options);
}

}  // namespace muster::cpu
