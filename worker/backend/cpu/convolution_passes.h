// The three passes of a convolution. Each may use a different algorithm, chosen in conv2d.cc.
#pragma once

#include <cstddef>
#include <memory>

#include "common/graph/graph.h"
#include "worker/backend/cpu/float_op.h"
#include "worker/backend/cpu/onednn.h"

namespace muster::cpu {

// The forward pass. As in Op, Run allocates nothing.
class ForwardPass {
 public:
  virtual ~ForwardPass() = default;
  virtual size_t scratch_floats() const = 0;
  virtual void Run(const FloatForwardArgs& args) = 0;
};

class CpuWeightLayouts;

// The backward pass with respect to the input (with the mask of OpOptions::input_is_relu), or to
// the weights and the bias.
class BackwardPass {
 public:
  virtual ~BackwardPass() = default;
  virtual size_t scratch_floats() const = 0;
  virtual void Run(const FloatBackwardArgs& args) = 0;
};

// The passes store copies of the weights in `layouts`, which must outlive them.

// These passes use oneDNN and support any convolution.
std::unique_ptr<ForwardPass> MakeDirectForward(OneDnn& dnn, const Layer& layer,
                                               const OpOptions& options, CpuWeightLayouts& layouts);
std::unique_ptr<BackwardPass> MakeDirectBackwardData(OneDnn& dnn, const Layer& layer,
                                                     const OpOptions& options,
                                                     CpuWeightLayouts& layouts);
std::unique_ptr<BackwardPass> MakeDirectBackwardWeights(OneDnn& dnn, const Layer& layer,
                                                        const OpOptions& options);

// These passes use Winograd's F(2x2, 3x3) and require WinogradFits. Either all three passes use it
// or none does.
bool WinogradFits(const Layer& layer, int64_t batch);
std::unique_ptr<ForwardPass> MakeWinogradForward(const Layer& layer, const OpOptions& options,
                                                 CpuWeightLayouts& layouts);
std::unique_ptr<BackwardPass> MakeWinogradBackwardData(const Layer& layer, const OpOptions& options,
                                                       CpuWeightLayouts& layouts);
std::unique_ptr<BackwardPass> MakeWinogradBackwardWeights(const Layer& layer,
                                                          const OpOptions& options);

}  // namespace muster::cpu
