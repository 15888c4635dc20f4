#include "worker/backend/cuda/column_sums.h"

namespace muster::cuda {
namespace {

struct Nothing {};

template <typename T>
struct AddValue {
  const T* values;
  int channels;
  __device__ void operator()(float* sums, int64_t row, int channel, Nothing) const {
    sums[0] += ToFloat(values[row * channels + channel]);
  }
};
struct PrepareNothing {
  __device__ Nothing operator()(int, int64_t) const { return {}; }
};

template <typename T>
__global__ void ColumnPartsKernel(const T* values, int64_t rows, int channels, double* scratch) {
  SumPart<1>(rows, channels, scratch, PrepareNothing(), AddValue<T>{values, channels});
}

__global__ void OverPartsKernel(const double* scratch, int parts, int channels, float* to) {
  for (int64_t c = ThreadInGrid(); c < channels; c += ThreadsOfGrid()) {
    to[c] = static_cast<float>(OverParts<1>(scratch, parts, channels, 0, static_cast<int>(c)));
  }
}

}  // namespace

// Makes enough parts to fill a GPU, each with enough rows to be efficient.
ColumnParts::ColumnParts(int64_t row_count, int channel_count)
    : rows(row_count),
      channels(channel_count),
      parts(static_cast<int>(
          std::clamp<int64_t>(row_count / (4 * kFloatRows * kRowThreads), 1, 256))) {}

size_t ColumnParts::scratch_bytes(int sums) const {
  return static_cast<size_t>(parts) * static_cast<size_t>(sums) * static_cast<size_t>(channels) *
         sizeof(double);
}

template <typename T>
void ColumnSums(const Target& target, const ColumnParts& parts, const T* values, double* scratch,
                float* to) {
  LaunchParts(target, parts, ColumnPartsKernel<T>, values, parts.rows, parts.channels, scratch);
  LaunchOver(target, parts.channels, OverPartsKernel, scratch, parts.parts, parts.channels, to);
}

template void ColumnSums(const Target&, const ColumnParts&, const float*, double*, float*);
template void ColumnSums(const Target&, const ColumnParts&, const Bf16*, double*, float*);

}  // namespace muster::cuda
