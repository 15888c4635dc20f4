// The functions with which cpu_backend.cc makes ops. The type of a layer's spec selects the
// overload; a spec without a Make does not compile.
#pragma once

#include <memory>

#include "common/graph/graph.h"
#include "worker/backend/cpu/bf16.h"
#include "worker/backend/cpu/typed_op.h"

namespace muster::cpu {

struct OneDnn;

struct OpRequest {
  const Layer& layer;
  const OpOptions& options;
  OneDnn& dnn;
  bool winograd;  // whether Winograd's algorithm is allowed
  bool bf16;      // whether activations are Bf16; a TypedOp<float> then works on copies
};

// Makes an op that has kernels for both types of activations.
template <template <typename> class OpOf, typename... Arguments>
std::unique_ptr<Op> MakeTyped(const OpRequest& request, const Arguments&... arguments) {
  if (request.bf16) return std::make_unique<OpOf<Bf16>>(arguments...);
  return std::make_unique<OpOf<float>>(arguments...);
}

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
template <ElementwiseSpec Spec>
std::unique_ptr<Op> Make(const Spec& spec, const OpRequest& request);
// Flatten moves no data and has no op.
inline std::nullptr_t Make(const FlattenSpec&, const OpRequest&) { return nullptr; }

// The part of Make(MeanSquaredErrorSpec) for values.
std::unique_ptr<LossOp> MakeValueError(const OpOptions& options);
// The part of Make(PoolSpec) for average pooling.
std::unique_ptr<Op> MakeAvgPool(const Layer& layer, const OpOptions& options);

// See Backend.
template <typename T>
void AddGradients(T* to, const T* a, const T* b, const T* relu_output, int64_t count);

}  // namespace muster::cpu
