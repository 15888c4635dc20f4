// The first phase of a two-phase step: averages the whole gradient before anything is updated,
// because its norm is needed (clip_norm) or because a non-finite value must leave everything
// unchanged (SKIP_STEP, worker.precision FP16). Costs a gradient buffer, which is written and read
// once per step.
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
  float unscale = 1;     // multiplies all sums first
  float weigh = 1;       // multiplies those of trained variables
  float clip_value = 0;  // 0: no clipping
  std::span<const Segment> segments;
  std::span<float> averaged;       // the whole gradient buffer
  std::span<double> line_squares;  // one per line of the buffer; empty if no norm is needed
};

// Writes the chunk's sum to `averaged`, and the sum of squares of each line of 16 floats to
// `line_squares` (0 for variables that are not trained). Returns true if every sum is finite.
bool AverageGradient(const ChunkAverage& average);

// The square root of the sum of `line_squares`, added in one fixed tree, so the bits only depend on
// the gradient. Chunks contain whole lines.
double GradientNorm(std::span<const double> line_squares);

}  // namespace muster
