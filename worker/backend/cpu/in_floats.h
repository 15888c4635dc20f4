// Lets an op or a loss that has kernels for floats only work on Bf16 activations: it gets copies as
// floats, and its results are rounded. For layers that take little of a step's time.
#pragma once

#include <memory>

#include "common/graph/graph.h"
#include "worker/backend/cpu/typed_op.h"

namespace muster::cpu {

// The logits of a dense layer (OpOptions::float_logits) are not converted.
std::unique_ptr<Op> InFloats(const Layer& layer, const OpOptions& options, std::unique_ptr<Op> op);
std::unique_ptr<LossOp> LossInFloats(const Layer& layer, const OpOptions& options,
                                     std::unique_ptr<LossOp> loss);

}  // namespace muster::cpu
