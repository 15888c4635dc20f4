// How a kernel applies a function with parameters for each channel to a matrix [rows, channels]:
// every thread stays in its pack of W channels, so that it reads their parameters once. Included
// only by .cu files.
#pragma once

#include <algorithm>

#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {

// A block has 2^line_bits threads side by side, each with a pack, and the rest below each other.
// Grid: [blocks of packs, blocks of rows].
struct RowsWalk {
  uint32_t rows, packs;  // packs: of a row
  int line_bits;

  __device__ uint32_t pack() const {
    return (blockIdx.x << line_bits) + (threadIdx.x & ((1u << line_bits) - 1));
  }
  // Calls use(row, load(row)) for this thread's rows. Two rows are loaded before the first is used,
  // to keep the memory busy.
  template <typename Load, typename Use>
  __device__ void ForRows(const Load& load, const Use& use) const {
    const uint32_t lines = blockDim.x >> line_bits, step = gridDim.y * lines;
    for (uint32_t row = blockIdx.y * lines + (threadIdx.x >> line_bits); row < rows;
         row += 2 * step) {
      const uint32_t next = row + step;
      const auto first = load(row);
      auto second = first;
      if (next < rows) second = load(next);
      use(row, first);
      if (next < rows) use(next, second);
    }
  }
};

// Starts kernel(walk, arguments...).
template <typename... Parameters, typename... Arguments>
void LaunchRows(const Target& target, int64_t rows, int packs,
                void (*kernel)(RowsWalk, Parameters...), Arguments... arguments) {
  if (rows == 0 || packs == 0) return;
  int line_bits = 0;
  while (line_bits < 5 && (1 << line_bits) < packs) ++line_bits;
  const int64_t lines = kBlock >> line_bits;
  const int64_t across = (packs + (1 << line_bits) - 1) >> line_bits;
  const int64_t down =
      std::clamp<int64_t>(target.most_blocks / across, 1, (rows + 4 * lines - 1) / (4 * lines));
  Launch(kernel, dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)), dim3(kBlock),
         target.stream,
         RowsWalk{static_cast<uint32_t>(rows), static_cast<uint32_t>(packs), line_bits},
         static_cast<Parameters>(arguments)...);
}

}  // namespace muster::cuda
