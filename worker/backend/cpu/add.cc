// The sum of several tensors, with an optional relu, and the sum of gradients.
#include "common/base/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

class Add : public FloatOp {
 public:
  Add(const Layer& layer, const OpOptions& options)
      : elements_(options.batch * layer.input_shape.elements()),
        relu_(options.activation == Activation::kRelu) {
    MUSTER_CHECK(options.activation != Activation::kRelu6);
  }

  void ForwardFloats(const FloatForwardArgs& args) override {
    float* const y = args.output;
    const float *const a = args.inputs[0], *const b = args.inputs[1];
    const bool two = args.inputs.size() == 2;
    AddTwo(y, a, b, relu_ && two);
    for (size_t j = 2; j < args.inputs.size(); ++j) {
      AddTwo(y, y, args.inputs[j], relu_ && j + 1 == args.inputs.size());
    }
  }

  void BackwardFloats(const FloatBackwardArgs&) override { MUSTER_CHECK(!"a sum has no backward"); }

 private:
  void AddTwo(float* y, const float* a, const float* b, bool relu) const {
    if (relu) {
      ForElements(elements_, [=](int64_t i) {
        const float sum = a[i] + b[i];
        y[i] = sum < 0 ? 0.0f : sum;  // not std::max: NaN must propagate
      });
    } else {
      ForElements(elements_, [=](int64_t i) { y[i] = a[i] + b[i]; });
    }
  }

  const int64_t elements_;
  const bool relu_;
};

}  // namespace

std::unique_ptr<Op> Make(const AddSpec&, const OpRequest& request) {
  return std::make_unique<Add>(request.layer, request.options);
}

void AddGradients(float* to, const float* a, const float* b, const float* relu_output,
                  int64_t floats) {
  const float* const y = relu_output;
  if (b == nullptr && y == nullptr) {
    ForElements(floats, [=](int64_t i) { to[i] = a[i]; });
  } else if (b == nullptr) {
    ForElements(floats, [=](int64_t i) { to[i] = y[i] > 0 ? a[i] : 0.0f; });
  } else if (y == nullptr) {
    ForElements(floats, [=](int64_t i) { to[i] = a[i] + b[i]; });
  } else {
    ForElements(floats, [=](int64_t i) { to[i] = y[i] > 0 ? a[i] + b[i] : 0.0f; });
  }
}

}  // namespace muster::cpu
