#include "worker/backend/cuda/column_sums.h"

namespace muster::cuda {
namespace {

template <typename T>
struct Values {
  const T* values;
  uint32_t channels;
  __device__ void Begin(int channel) { values += channel; }
  __device__ T Load(uint32_t row) const { return values[row * channels]; }
  __device__ void Add(float* sums, uint32_t, T value) const { sums[0] += ToFloat(value); }
};

template <typename T>
__global__ void MUSTER_FOUR_BLOCKS ColumnPartsKernel(const T* values, uint32_t rows,
                                                     uint32_t part_rows, int channels,
                                                     double* scratch) {
  SumPart<1, 8>(rows, part_rows, channels, scratch,
                Values<T>{values, static_cast<uint32_t>(channels)});
}

__global__ void OverPartsKernel(const double* scratch, uint32_t parts, uint32_t channels,
                                float* to) {
  for (uint32_t c = ThreadInGrid() / 32; c < channels; c += ThreadsOfGrid() / 32) {
    const double sum = OverParts<1>(scratch, parts, channels, 0, c);
    if (Lane() == 0) to[c] = static_cast<float>(sum);
  }
}

}  // namespace

// Makes enough parts to fill a GPU, each with enough rows to be efficient.
ColumnParts::ColumnParts(int64_t row_count, int channel_count)
    : rows(row_count), channels(channel_count) {
  const int64_t tiles = (channel_count + kColumns - 1) / kColumns;
  const int64_t most = std::max<int64_t>(1, 1024 / tiles);
  const int64_t wanted = std::clamp<int64_t>(rows / (4 * kFloatRows * kRowThreads), 1, most);
  part_rows = std::max<int64_t>(1, (rows + wanted - 1) / wanted);
  parts = static_cast<int>(std::max<int64_t>(1, (rows + part_rows - 1) / part_rows));
}

size_t ColumnParts::scratch_bytes(int sums) const {
  return static_cast<size_t>(parts) * static_cast<size_t>(sums) * static_cast<size_t>(channels) *
         sizeof(double);
}

template <typename T>
void ColumnSums(const Target& target, const ColumnParts& parts, const T* values, double* scratch,
                float* to) {
  LaunchParts(target, parts, ColumnPartsKernel<T>, values, parts.rows, parts.part_rows,
              parts.channels, scratch);
  LaunchWarps(target, parts.channels, OverPartsKernel, scratch, parts.parts, parts.channels, to);
}

#define MUSTER_INSTANTIATE(T) \
  template void ColumnSums(const Target&, const ColumnParts&, const T*, double*, float*);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
