// Elementwise layers that could not be fused into the preceding layer.
#include "common/base/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

// y = Value(layer, x), dx = Gradient(layer, y, dy). Layers with LayerTraits::passes_gradient_on
// have no Gradient. std::max and std::clamp are avoided because NaN must propagate.
float Value(const ReluSpec&, float x) { return x < 0 ? 0.0f : x; }

float Value(const Relu6Spec&, float x) {
  const float positive = x < 0 ? 0.0f : x;
  return positive > 6 ? 6.0f : positive;
}
float Gradient(const Relu6Spec&, float y, float dy) { return (y > 0) & (y < 6) ? dy : 0.0f; }

template <ElementwiseSpec Spec>
class Elementwise : public FloatOp {
 public:
  Elementwise(const Spec& spec, int64_t elements) : spec_(spec), elements_(elements) {}

  void ForwardFloats(const FloatForwardArgs& args) override {
    ForElements(elements_, [&](int64_t i) { args.output[i] = Value(spec_, args.input[i]); });
  }

  void BackwardFloats([[maybe_unused]] const FloatBackwardArgs& args) override {
    if constexpr (requires { Gradient(spec_, 0.0f, 0.0f); }) {
      ForElements(elements_, [&](int64_t i) {
        args.input_gradient[i] = Gradient(spec_, args.output[i], args.output_gradient[i]);
      });
    } else {
      MUSTER_CHECK(!"a layer that passes its gradient on has no backward");
    }
  }

 private:
  const Spec spec_;
  const int64_t elements_;
};

}  // namespace

template <ElementwiseSpec Spec>
std::unique_ptr<Op> Make(const Spec& spec, const OpRequest& request) {
  return std::make_unique<Elementwise<Spec>>(
      spec, request.options.batch * request.layer.input_shape.elements());
}

template std::unique_ptr<Op> Make(const ReluSpec&, const OpRequest&);
template std::unique_ptr<Op> Make(const Relu6Spec&, const OpRequest&);

}  // namespace muster::cpu
