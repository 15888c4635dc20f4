// What each source file of the CUDA backend offers to cuda_backend.cc, which finds a layer's op by
// the type of its spec: a spec without a Make does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/graph/graph.h"
#include "worker/backend/cuda/card.h"
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
std::unique_ptr<Op> Make(const LrnSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const ReluSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const DropoutSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const Relu6Spec&, const OpRequest& request);
std::unique_ptr<Op> Make(const BatchNormSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const AddSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const ConcatSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const GlobalAvgPoolSpec&, const OpRequest& request);
std::unique_ptr<Op> Make(const SoftmaxSpec&, const OpRequest& request);
std::unique_ptr<LossOp> Make(const SoftmaxCrossEntropySpec&, const OpRequest& request);
std::unique_ptr<LossOp> Make(const MeanSquaredErrorSpec&, const OpRequest& request);
std::unique_ptr<ImageOp> MakeImageOp(const ImageRecipe& recipe, Card& card);
// Moves nothing: has none.
inline std::nullptr_t Make(const FlattenSpec&, const OpRequest&) { return nullptr; }

// `elements` for each of the batch's samples: throws Error where kernels could not count that many.
int RequireCount(const OpRequest& request, int64_t elements);
// Of the layer's input and output.
int InputCount(const OpRequest& request);
int OutputCount(const OpRequest& request);

// Ops of this backend: their untyped addresses as those of T.
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
  // The output of a relu before, where its derivative is this op's to apply.
  const T* ReluBefore(const BackwardArgs& args) const {
    return options_.input_is_relu ? In(args.input) : nullptr;
  }

  Card& card_;
  const OpOptions options_;
};

}  // namespace muster::cuda
