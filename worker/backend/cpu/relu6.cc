// y = min(max(0, x), 6), where it could not be made part of the layer before.
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

class Relu6 : public FloatOp {
 public:
  explicit Relu6(int64_t elements) : elements_(elements) {}

  void ForwardFloats(const FloatForwardArgs& args) override {
    // Not std::clamp: a NaN must come through.
    ForElements(elements_, [&](int64_t i) {
      const float x = args.input[i];
      const float positive = x < 0 ? 0.0f : x;
      args.output[i] = positive > 6 ? 6.0f : positive;
    });
  }

  void BackwardFloats(const FloatBackwardArgs& args) override {
    ForElements(elements_, [&](int64_t i) {
      const float y = args.output[i];
      args.input_gradient[i] = (y > 0) & (y < 6) ? args.output_gradient[i] : 0.0f;
    });
  }

 private:
  const int64_t elements_;
};

}  // namespace

std::unique_ptr<Op> Make(const Relu6Spec&, const OpRequest& request) {
  return std::make_unique<Relu6>(request.options.batch * request.layer.input_shape.elements());
}

}  // namespace muster::cpu
