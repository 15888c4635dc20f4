// Divides a matrix of rows x channels for kernels that sum its rows. Threads sum separate parts,
// whose sums are then combined in order. Each part is divided into blocks that fit into the L1
// cache. The division depends only on the shape, so the sums do not depend on the number of
// threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/plan/slices.h"

namespace muster::cpu {

class RowParts {
 public:
  RowParts(int64_t rows, int64_t channels)
      : rows_(rows), block_rows_(std::max<int64_t>(8, kBlockFloats / channels)) {
    const int64_t blocks = (rows + block_rows_ - 1) / block_rows_;
    count_ = std::clamp<int64_t>(blocks / kBlocksPerPart, 1, kMaxParts);
  }

  int64_t count() const { return count_; }
  Range Part(int64_t part) const { return {rows_ * part / count_, rows_ * (part + 1) / count_}; }

  // Calls body(first row, rows) for the blocks of a part, in order.
  template <typename Body>
  void ForBlocks(int64_t part, const Body& body) const {
    const Range range = Part(part);
    for (int64_t row = range.begin; row < range.end; row += block_rows_) {
      body(row, std::min(block_rows_, range.end - row));
    }
  }

 private:
  static constexpr int64_t kBlockFloats = 4096, kBlocksPerPart = 4, kMaxParts = 512;

  int64_t rows_, block_rows_, count_;
};

}  // namespace muster::cpu
