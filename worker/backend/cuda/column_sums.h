// Computes several sums over the rows of a matrix, in a fixed order. Each block sums a part of the
// rows: a thread adds a few rows at a time in float, and these sums in double; then a tree adds the
// sums of a channel's threads. The parts are added one after the other. Included only by .cu files.
#pragma once

#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {

constexpr int kColumns = 32, kRowThreads = kBlock / kColumns;
constexpr int kFloatRows = 16;  // summed in float

struct PartRows {
  int64_t begin, end;
};
__device__ inline PartRows RowsOf(int64_t rows, int parts, int part) {
  return {rows * part / parts, rows * (part + 1) / parts};
}

// Writes N sums for each part and channel to scratch[(part * N + sum) * channels + channel].
// add(sums, row, channel, prepared) adds a row to float sums[N]; `prepared` is the result of
// prepare(channel, first row). Grid: [tiles of 32 channels, parts].
template <int N, typename Prepare, typename AddRow>
__device__ inline void SumPart(int64_t rows, int channels, double* scratch, const Prepare& prepare,
                               const AddRow& add) {
  __shared__ double shared[kRowThreads][N][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int thread_row = static_cast<int>(threadIdx.x) / kColumns;
  const int channel = static_cast<int>(blockIdx.x) * kColumns + column;
  const PartRows part = RowsOf(rows, static_cast<int>(gridDim.y), static_cast<int>(blockIdx.y));
  double sums[N] = {};
  if (channel < channels) {
    const auto prepared = prepare(channel, part.begin);
    for (int64_t row = part.begin + thread_row; row < part.end;) {
      float few[N] = {};
      for (int i = 0; i < kFloatRows && row < part.end; ++i, row += kRowThreads) {
        add(few, row, channel, prepared);
      }
      for (int n = 0; n < N; ++n) sums[n] += few[n];
    }
  }
  for (int n = 0; n < N; ++n) shared[thread_row][n][column] = sums[n];
  __syncthreads();
  for (int half = kRowThreads / 2; half > 0; half /= 2) {
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

// Returns sum n of a channel over all parts.
template <int N>
__device__ inline double OverParts(const double* scratch, int parts, int channels, int n,
                                   int channel) {
  double sum = 0;
  for (int part = 0; part < parts; ++part) {
    sum += scratch[(static_cast<int64_t>(part) * N + n) * channels + channel];
  }
  return sum;
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
