// The sum of several tensors, with an optional relu, and the sum of gradients.
#include "common/base/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

template <typename T>
class Add : public TypedOp<T> {
 public:
  Add(const Layer& layer, const OpOptions& options)
      : elements_(options.batch * layer.input_shape.elements()),
        relu_(options.activation == Activation::kRelu) {
    MUSTER_CHECK(options.activation != Activation::kRelu6);
  }

  void ForwardTyped(const TypedForwardArgs<T>& args) override {
    T* const y = args.output;
    const T *const a = args.inputs[0], *const b = args.inputs[1];
    const bool two = args.inputs.size() == 2;
    AddTwo(y, a, b, relu_ && two);
    for (size_t j = 2; j < args.inputs.size(); ++j) {
      AddTwo(y, y, args.inputs[j], relu_ && j + 1 == args.inputs.size());
    }
  }

  void BackwardTyped(const TypedBackwardArgs<T>&) override {
    MUSTER_CHECK(!"a sum has no backward");
  }

 private:
  void AddTwo(T* y, const T* a, const T* b, bool relu) const {
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
  return MakeTyped<Add>(request, request.layer, request.options);
}

template <typename T>
void AddGradients(T* to, const T* a, const T* b, const T* relu_output, int64_t count) {
  const T* const y = relu_output;
  if (b == nullptr && y == nullptr) {
    ForElements(count, [=](int64_t i) { to[i] = a[i]; });
  } else if (b == nullptr) {
    ForElements(count, [=](int64_t i) { to[i] = y[i] > 0 ? float{a[i]} : 0.0f; });
  } else if (y == nullptr) {
    ForElements(count, [=](int64_t i) { to[i] = a[i] + b[i]; });
  } else {
    ForElements(count, [=](int64_t i) { to[i] = y[i] > 0 ? a[i] + b[i] : 0.0f; });
  }
}

template void AddGradients(float*, const float*, const float*, const float*, int64_t);
template void AddGradients(Bf16*, const Bf16*, const Bf16*, const Bf16*, int64_t);

}  // namespace muster::cpu
