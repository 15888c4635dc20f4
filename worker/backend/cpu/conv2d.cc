// A convolution whose passes each use the algorithm that suits the shape.
#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "worker/backend/cpu/convolution_passes.h"
#include "worker/backend/cpu/few_channels_gradient.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/weight_layouts.h"

namespace muster::cpu {
namespace {

class FewChannelsBackwardWeights : public BackwardPass {
 public:
  FewChannelsBackwardWeights(const Layer& layer, const OpOptions& options)
      : gradient_(layer, options.batch), use_bias_(std::get<Conv2dSpec>(layer.spec).use_bias) {}
  size_t scratch_floats() const override { return gradient_.scratch_floats(); }
  void Run(const BackwardArgs& args) override {
    gradient_.Run(Floats(args.input), Floats(args.output_gradient), args.weights_gradient,
                  use_bias_ ? args.bias_gradient : nullptr, Floats(args.scratch));
  }

 private:
  const FewChannelsGradient gradient_;
  const bool use_bias_;
};

class Conv2d : public Op {
 public:
  explicit Conv2d(const OpRequest& request) {
    MakePasses(request, LayoutsOf(request.options, own_layouts_));
    own_layouts_.Allocate();
  }

  // The passes run one after the other in the same scratch.
  size_t scratch_bytes() const override {
    const auto floats = [](const auto& pass) { return pass ? pass->scratch_floats() : 0; };
    return std::max({floats(forward_), floats(backward_data_), floats(backward_weights_)}) *
           sizeof(float);
  }
  size_t state_bytes() const override { return 0; }

  void Forward(const ForwardArgs& args) override { forward_->Run(args); }

  void Backward(const BackwardArgs& args) override {
    backward_weights_->Run(args);
    if (backward_data_) backward_data_->Run(args);
  }

 private:
  void MakePasses(const OpRequest& request, CpuWeightLayouts& layouts) {
    const Layer& layer = request.layer;
    const OpOptions& options = request.options;
    const bool winograd = request.winograd && !request.bf16 && WinogradFits(layer, options.batch);
    forward_ = winograd ? MakeWinogradForward(layer, options, layouts)
                        : MakeDirectForward(request, layouts);
    if (options.mode != Mode::kTraining) return;
    if (options.input_gradient) {
      backward_data_ = winograd ? MakeWinogradBackwardData(layer, options, layouts)
                                : MakeDirectBackwardData(request, layouts);
    }
    if (winograd) {
      backward_weights_ = MakeWinogradBackwardWeights(layer, options);
    } else if (!request.bf16 && FewChannelsGradient::Fits(layer)) {
      backward_weights_ = std::make_unique<FewChannelsBackwardWeights>(layer, options);
    } else {
      backward_weights_ = MakeDirectBackwardWeights(request);
    }
  }

  CpuWeightLayouts own_layouts_;  // used if the tower has none
  std::unique_ptr<ForwardPass> forward_;
  std::unique_ptr<BackwardPass> backward_data_, backward_weights_;
};

}  // namespace

std::unique_ptr<Op> Make(const Conv2dSpec&, const OpRequest& request) {
  return std::make_unique<Conv2d>(request);
}

}  // namespace muster::cpu
