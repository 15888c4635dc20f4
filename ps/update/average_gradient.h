// The first phase of a two-phase step: the whole gradient is averaged before anything is updated,
// because its norm is needed (clip_norm) or because a value that is not finite must leave
// everything as it was (SKIP_STEP). Costs an arena of memory and a write and a read of it per step.
#pragma once

#include <span>

#include "common/plan/chunks.h"
#include "ps/update/segments.h"
#include "ps/update/update.h"

namespace muster {

struct ChunkAverage {
  const UpdateKernelTable& kernels;
  Chunk chunk;
  ChunkGradient gradient;
  float clip_value = 0;  // 0: no clipping
  std::span<const Segment> segments;
  std::span<float> averaged;       // the whole arena
  std::span<double> line_squares;  // of the arena's lines, or empty: no norm is wanted
};

// Writes the chunk's sum to `averaged` and the squares of its lines of 16 floats (of variables
// that are trained; 0 of others) to `line_squares`. True if every sum is finite.
bool AverageGradient(const ChunkAverage& average);

// The square root of the sum of `line_squares`, added in one fixed tree: the bits depend on the
// arena only. No chunk cuts a line.
double GradientNorm(std::span<const double> line_squares);

}  // namespace muster
