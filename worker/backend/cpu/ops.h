// What each source file of the CPU backend offers to cpu_backend.cc: one maker per layer.
#pragma once

#include <memory>

#include "common/graph/graph.h"
#include "worker/backend/cpu/float_op.h"

namespace muster::cpu {

struct OneDnn;

std::unique_ptr<Op> MakeConv2d(OneDnn& dnn, const Layer& layer, const OpOptions& options,
                               bool winograd_allowed);
std::unique_ptr<Op> MakeDense(OneDnn& dnn, const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeMaxPool(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeAvgPool(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeLrn(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeRelu(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeDropout(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeRelu6(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeBatchNorm(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeAdd(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeConcat(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeGlobalAvgPool(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeSoftmax(const Layer& layer, const OpOptions& options);
std::unique_ptr<LossOp> MakeSoftmaxCrossEntropy(const Layer& layer, const OpOptions& options);
std::unique_ptr<LossOp> MakeMeanSquaredError(const Layer& layer, const OpOptions& options);

// See Backend.
void AddGradients(float* to, const float* a, const float* b, const float* relu_output,
                  int64_t floats);

}  // namespace muster::cpu
