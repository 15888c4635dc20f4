// Computes several sums over the rows of a matrix, in a fixed order. Each block sums a part of the
// rows: a thread adds a few rows at a time in float, and these sums in double; then a tree adds the
// sums of a channel's threads. A warp per channel adds the parts. Included only by .cu files.
#pragma once

#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {

constexpr int kColumns = 32, kRowThreads = kBlock / kColumns;
constexpr int kFloatRows = 16;  // summed in float

// Writes N sums for each part and channel to scratch[(part * N + sum) * channels + channel].
// The functor `sum` has Begin(channel), Load(row), which returns what it needs of a row, and
// Add(float sums[N], row, loaded). kLoads rows are loaded before the first of them is added, to
// keep the memory busy. Grid: [tiles of 32 channels, parts].
template <int N, int kLoads, typename Sum>
__device__ inline void SumPart(uint32_t rows, uint32_t part_rows, int channels, double* scratch,
                               Sum sum) {
  static_assert(kFloatRows % kLoads == 0);
  __shared__ double shared[kRowThreads][N][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const uint32_t thread_row = threadIdx.x / kColumns;
  const int channel = static_cast<int>(blockIdx.x) * kColumns + column;
  const uint32_t begin = blockIdx.y * part_rows;
  const uint32_t end = begin + part_rows < rows ? begin + part_rows : rows;
  double sums[N] = {};
  if (channel < channels) {
    sum.Begin(channel);
    for (uint32_t first = begin + thread_row; first < end; first += kFloatRows * kRowThreads) {
      float few[N] = {};
#pragma unroll
      for (int batch = 0; batch < kFloatRows; batch += kLoads) {
        decltype(sum.Load(0)) loaded[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const uint32_t row = first + static_cast<uint32_t>(batch + i) * kRowThreads;
          if (row < end) loaded[i] = sum.Load(row);
        }
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const uint32_t row = first + static_cast<uint32_t>(batch + i) * kRowThreads;
          if (row < end) sum.Add(few, row, loaded[i]);
        }
      }
      for (int n = 0; n < N; ++n) sums[n] += few[n];
    }
  }
  for (int n = 0; n < N; ++n) shared[thread_row][n][column] = sums[n];
  __syncthreads();
  for (uint32_t half = kRowThreads / 2; half > 0; half /= 2) {
    if (thread_row < half) {
      for (int n = 0; n < N; ++n) {
        shared[thread_row][n][column] += shared[thread_row + half][n][column];
      }
    }
    __syncthreads();
  }
  if (thread_row == 0 && channel < channels) {
    for (int n = 0; n < N; ++n) {
      scratch[(static_cast<int64_t>(blockIdx.y) * N + n) * channels + channel] =
          shared[0][n][column];
    }
  }
}

// Returns sum n of a channel over all parts, to all lanes of a warp.
template <int N>
__device__ inline double OverParts(const double* scratch, uint32_t parts, uint32_t channels,
                                   uint32_t n, uint32_t channel) {
  double sum = 0;
  for (uint32_t part = threadIdx.x % 32; part < parts; part += 32) {
    sum += scratch[(part * N + n) * channels + channel];
  }
  return WarpSum(sum);
}

// Launches a kernel with the grid and block of SumPart.
template <typename... Parameters, typename... Arguments>
void LaunchParts(const Target& target, const ColumnParts& parts, void (*kernel)(Parameters...),
                 Arguments... arguments) {
  const dim3 grid(static_cast<unsigned>((parts.channels + kColumns - 1) / kColumns),
                  static_cast<unsigned>(parts.parts));
  Launch(kernel, grid, dim3(kBlock), target.stream, static_cast<Parameters>(arguments)...);
}

}  // namespace muster::cuda
