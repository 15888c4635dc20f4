// Mean and variance of each channel of a [rows, channels] matrix, in one pass over memory.
//
// Σx² - (Σx)²/n would lose all its digits if the mean were large compared to the spread. Each part
// of the rows is therefore shifted by the mean k of its first block: with the block's share f of
// the part, (mean - k)² is at most (1 - f)/f times the variance, so Σ(x-k)² - (Σ(x-k))²/n loses at
// most one digit. Parts are combined in double precision (Chan, Golub, LeVeque 1979).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/backend/cpu/row_parts.h"

namespace muster::cpu {

class BatchStatistics {
 public:
  BatchStatistics(int64_t rows, int64_t channels);

  size_t scratch_floats() const;
  // The variance is divided by the number of rows (not rows - 1).
  // `T`: float or Bf16.
  template <typename T>
  void Run(const T* x, float* scratch, float* mean, float* variance) const;

 private:
  // The sums of one part, in scratch.
  struct Sums {
    double *sum, *squares;  // of x - shift
    float* shift;
  };
  Sums SumsOf(int64_t part, float* scratch) const;
  template <typename T>
  void SumPart(const T* x, int64_t part, const Sums& sums) const;
  void Combine(float* scratch, float* mean, float* variance) const;

  const int64_t rows_, channels_;
  const RowParts parts_;
  const int64_t stride_;  // channels, rounded up to whole cache lines
};

}  // namespace muster::cpu
