#include "worker/backend/cpu/weight_layouts.h"

#include "common/base/error.h"

namespace muster::cpu {

using winograd::TransformedWeights;

size_t CpuWeightLayouts::bytes() const {
  size_t sum = 0;
  for (const auto& [key, weights] : transformed_) sum += weights->bytes();
  for (const auto& [layer, layouts] : reordered_) {
    for (const auto& weights : layouts) sum += weights->bytes();
  }
  return sum;
}

void CpuWeightLayouts::Allocate() {
  for (const auto& [key, weights] : transformed_) weights->Allocate();
  for (const auto& [layer, layouts] : reordered_) {
    for (const auto& weights : layouts) weights->Allocate();
  }
}

TransformedWeights& CpuWeightLayouts::Transformed(int layer, int64_t inputs, int64_t outputs,
                                                  TransformedWeights::Use use) {
  auto& entry = transformed_[{layer, use}];
  if (!entry) entry = std::make_unique<TransformedWeights>(inputs, outputs, use);
  return *entry;
}

ReorderedWeights& CpuWeightLayouts::Reordered(const OneDnn& dnn, int layer,
                                              const dnnl::memory::desc& outside,
                                              const dnnl::memory::desc& inside) {
  auto& layouts = reordered_[layer];
  for (const auto& weights : layouts) {
    if (weights->layout() == inside) return *weights;
  }
  layouts.push_back(std::make_unique<ReorderedWeights>(dnn, outside, inside));
  return *layouts.back();
}

CpuWeightLayouts& LayoutsOf(const OpOptions& options, CpuWeightLayouts& own) {
  if (options.layouts == nullptr) return own;
  auto* const layouts = dynamic_cast<CpuWeightLayouts*>(options.layouts);
  MUSTER_CHECK(layouts != nullptr);
  return *layouts;
}

}  // namespace muster::cpu
