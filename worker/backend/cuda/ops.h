// The functions with which cuda_backend.cc makes ops. The type of a layer's spec selects the
// overload; a spec without a Make does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/error.h"
#include "common/graph/graph.h"
#include "worker/backend/cuda/card.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/op.h"

namespace muster::cuda {

struct OpRequest {
  const Layer& layer;
  const OpOptions& options;
  Card& card;
};

std::unique_ptr<Op> Make(const Conv2dSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const DenseSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const PoolSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const ReflectPadSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const LrnSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const DropoutSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const BatchNormSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const GroupNormSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const AddSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const ConcatSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const GlobalAvgPoolSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const SoftmaxSpec&, const OpRequest& request);
std::unique_ptr<LossOp> Make(const SoftmaxCrossEntropySpec&, const OpRequest& request);
std::unique_ptr<LossOp> Make(const MeanSquaredErrorSpec&, const OpRequest& request);
std::unique_ptr<LossOp> Make(const SigmoidCrossEntropySpec&, const OpRequest& request);
std::unique_ptr<ImageOp> MakeImageOp(const ImageRecipe& recipe, Card& card);
// Flatten moves no data and has no op.
inline std::nullptr_t Make(const FlattenSpec&, const OpRequest&) { return nullptr; }

// Returns the number of elements of a batch with `elements` per sample. Throws Error if kernels
// cannot count that many.
int RequireCount(const OpRequest& request, int64_t elements);
// The same for the layer's input and output.
int InputCount(const OpRequest& request);
int OutputCount(const OpRequest& request);

// The base class of this backend's ops: converts untyped addresses to T.
template <typename T>
class TypedOp : public Op {
 public:
  explicit TypedOp(const OpRequest& request) : card_(request.card), options_(request.options) {}

  size_t state_bytes() const override { return 0; }
  size_t scratch_bytes() const override { return 0; }

 protected:
  static const T* In(const void* at) { return static_cast<const T*>(at); }
  static T* Out(void* at) { return static_cast<T*>(at); }
  Target target() const { return card_.target(); }
  bool trains() const { return options_.mode == Mode::kTraining; }
  // Returns the output of the preceding relu if this op must apply its derivative, else null.
  const T* ReluBefore(const BackwardArgs& args) const {
    return options_.input_is_relu ? In(args.input) : nullptr;
  }

  Card& card_;
  const OpOptions options_;
};

template <ElementwiseSpec Spec, typename T>
class ElementwiseOp : public TypedOp<T> {
 public:
  ElementwiseOp(const Spec& spec, const OpRequest& request)
      : TypedOp<T>(request), spec_(spec), count_(InputCount(request)) {}

  void Forward(const ForwardArgs& args) override {
    Elementwise(this->target(), spec_, this->Out(args.output), this->In(args.input), count_);
  }
  void Backward(const BackwardArgs& args) override {
    const LayerTraits traits = spec_.traits();
    MUSTER_CHECK(!traits.passes_gradient_on);
    const bool of_input = traits.backward_reads_input == LayerTraits::Reads::kAlways;
    ElementwiseGradient(this->target(), spec_, this->Out(args.input_gradient),
                        this->In(of_input ? args.input : args.output),
                        this->In(args.output_gradient), count_);
  }

 private:
  const Spec spec_;
  const int count_;
};

template <ElementwiseSpec Spec>
std::unique_ptr<Op> Make(const Spec& spec, const OpRequest& request) {
  return WithElement(request.card.activation_type(),
                     [&]<typename T>(std::type_identity<T>) -> std::unique_ptr<Op> {
                       return std::make_unique<ElementwiseOp<Spec, T>>(spec, request);
                     });
}

}  // namespace muster::cuda
