// Tracks which gradients of a step have arrived, by chunk and slice.
//
// Pure logic without a clock. Owner: the work of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/plan/slices.h"

namespace muster {

class ArrivedGradients {
 public:
  // `chunks`: number of chunks of a gradient.
  explicit ArrivedGradients(size_t chunks) : chunks_(chunks) {}

  // Starts a step with this number of slices.
  void BeginStep(int64_t slices);
  // Records that the chunk's gradient for this subtree has arrived.
  void Add(size_t chunk, const TreeNode& node);

  // Whether all chunks of the slice have arrived.
  bool HasAll(int64_t slice) const { return counts_[static_cast<size_t>(slice)] >= chunks_; }
  // Chunks for which no slice of the subtree has arrived.
  std::vector<bool> MissingChunks(const TreeNode& node) const;
  // Whether each chunk has either all slices of the subtree or none.
  bool IsWhole(const TreeNode& node) const;

 private:
  bool Has(size_t chunk, int64_t slice) const;

  const size_t chunks_;
  int64_t slices_ = 0;
  std::vector<bool> arrived_;   // by chunk and slice
  std::vector<size_t> counts_;  // number of chunks, by slice
};

}  // namespace muster
