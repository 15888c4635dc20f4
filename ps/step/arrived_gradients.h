// Which gradients of a step have arrived: for each chunk and slice, yes or no.
//
// A decider without a clock. Owner: the work of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/plan/slices.h"

namespace muster {

class ArrivedGradients {
 public:
  // `chunks` of a gradient.
  explicit ArrivedGradients(size_t chunks) : chunks_(chunks) {}

  // Nothing of this step, which has so many slices, has arrived.
  void BeginStep(int64_t slices);
  // The gradient of the subtree, of this chunk.
  void Add(size_t chunk, const TreeNode& node);

  // Whether all chunks of the slice have arrived.
  bool HasAll(int64_t slice) const { return counts_[static_cast<size_t>(slice)] >= chunks_; }
  // Chunks of which no slice of the subtree has arrived.
  std::vector<bool> MissingChunks(const TreeNode& node) const;
  // Whether each chunk has all of the subtree or nothing of it.
  bool IsWhole(const TreeNode& node) const;

 private:
  bool Has(size_t chunk, int64_t slice) const;

  const size_t chunks_;
  int64_t slices_ = 0;
  std::vector<bool> arrived_;   // of each chunk and slice
  std::vector<size_t> counts_;  // chunks, of each slice
};

}  // namespace muster
