// The copies of weights that the convolutions of one tower share: one for each layer and layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "worker/backend/cpu/onednn.h"
#include "worker/backend/cpu/reordered_weights.h"
#include "worker/backend/cpu/winograd_weights.h"
#include "worker/backend/op.h"

namespace muster::cpu {

class CpuWeightLayouts final : public WeightLayouts {
 public:
  size_t bytes() const override;
  void Allocate() override;

  // Returns the copy for these arguments, which the first call makes. It is valid as long as this
  // object.
  winograd::TransformedWeights& Transformed(int layer, int64_t inputs, int64_t outputs,
                                            winograd::TransformedWeights::Use use);
  // Likewise; `outside` must depend only on the layer.
  ReorderedWeights& Reordered(const OneDnn& dnn, int layer, const dnnl::memory::desc& outside,
                              const dnnl::memory::desc& inside);

 private:
  std::map<std::pair<int, winograd::TransformedWeights::Use>,
           std::unique_ptr<winograd::TransformedWeights>>
      transformed_;
  std::map<int, std::vector<std::unique_ptr<ReorderedWeights>>> reordered_;  // a few per layer
};

// The tower's layouts, or `own` if the op was made without a tower.
CpuWeightLayouts& LayoutsOf(const OpOptions& options, CpuWeightLayouts& own);

}  // namespace muster::cpu
