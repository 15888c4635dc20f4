// The three passes of a convolution. Each may use a different algorithm, chosen in conv2d.cc. Only
// the direct passes support activations in bfloat16.
#pragma once

#include <cstddef>
#include <memory>

#include "common/graph/graph.h"
#include "worker/backend/cpu/onednn.h"
#include "worker/backend/op.h"

namespace muster::cpu {

// The forward pass. As in Op, Run allocates nothing.
class ForwardPass {
 public:
  virtual ~ForwardPass() = default;
  virtual size_t scratch_floats() const = 0;
  virtual void Run(const ForwardArgs& args) = 0;
};

class CpuWeightLayouts;
struct OpRequest;

// The backward pass with respect to the input (with the mask of OpOptions::input_is_relu), or to
// the weights and the bias.
class BackwardPass {
 public:
  virtual ~BackwardPass() = default;
  virtual size_t scratch_floats() const = 0;
  virtual void Run(const BackwardArgs& args) = 0;
};

// The passes store copies of the weights in `layouts`, which must outlive them.

// These passes use oneDNN and support any convolution.
std::unique_ptr<ForwardPass> MakeDirectForward(const OpRequest& request, CpuWeightLayouts& layouts);
std::unique_ptr<BackwardPass> MakeDirectBackwardData(const OpRequest& request,
                                                     CpuWeightLayouts& layouts);
std::unique_ptr<BackwardPass> MakeDirectBackwardWeights(const OpRequest& request);

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
