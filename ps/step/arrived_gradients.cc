#include "ps/step/arrived_gradients.h"

namespace muster {

void ArrivedGradients::BeginStep(int64_t slices) {
  slices_ = slices;
  arrived_.assign(chunks_ * static_cast<size_t>(slices), false);
  counts_.assign(static_cast<size_t>(slices), 0);
}

void ArrivedGradients::Add(size_t chunk, const TreeNode& node) {
  const Range slices = Covers(node, slices_);
  for (int64_t slice = slices.begin; slice < slices.end; ++slice) {
    arrived_[chunk * static_cast<size_t>(slices_) + static_cast<size_t>(slice)] = true;
    ++counts_[static_cast<size_t>(slice)];
  }
}

bool ArrivedGradients::Has(size_t chunk, int64_t slice) const {
  return arrived_[chunk * static_cast<size_t>(slices_) + static_cast<size_t>(slice)];
}

std::vector<bool> ArrivedGradients::MissingChunks(const TreeNode& node) const {
  const Range slices = Covers(node, slices_);
  std::vector<bool> missing(chunks_);
  for (size_t c = 0; c < chunks_; ++c) missing[c] = !Has(c, slices.begin);
  return missing;
}

bool ArrivedGradients::IsWhole(const TreeNode& node) const {
  const Range slices = Covers(node, slices_);
  for (size_t c = 0; c < chunks_; ++c) {
    for (int64_t slice = slices.begin + 1; slice < slices.end; ++slice) {
      if (Has(c, slice) != Has(c, slices.begin)) return false;
    }
  }
  return true;
}

}  // namespace muster
