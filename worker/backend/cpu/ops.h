// What each source file of the CPU backend offers to cpu_backend.cc: one maker per layer.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace muster::cpu {

struct OneDnn;

std::unique_ptr<Op> MakeConv2d(OneDnn& dnn, const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeDense(OneDnn& dnn, const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeMaxPool(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeAvgPool(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeLrn(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeRelu(const Layer& layer, const OpOptions& options);
std::unique_ptr<Op> MakeDropout(const Layer& layer, const OpOptions& options);
std::unique_ptr<LossOp> MakeSoftmaxCrossEntropy(const Layer& layer, const OpOptions& options);

}  // namespace muster::cpu
