// y = max(0, x), where it could not be fused into the layer before.
#include "common/base/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

class Relu : public FloatOp {
 public:
  explicit Relu(int64_t elements) : elements_(elements) {}

  void ForwardFloats(const FloatForwardArgs& args) override {
    // Not std::max: a NaN must come through.
    ForElements(elements_,
                [&](int64_t i) { args.output[i] = args.input[i] < 0 ? 0.0f : args.input[i]; });
  }

  void BackwardFloats(const FloatBackwardArgs&) override {
    MUSTER_CHECK(!"a relu has no backward");
  }

 private:
  const int64_t elements_;
};

}  // namespace

std::unique_ptr<Op> Make(const ReluSpec&, const OpRequest& request) {
  return std::make_unique<Relu>(request.options.batch * request.layer.input_shape.elements());
}

}  // namespace muster::cpu
