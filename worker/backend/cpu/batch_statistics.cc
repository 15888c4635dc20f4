#include "worker/backend/cpu/batch_statistics.h"

#include <algorithm>

#include "worker/backend/cpu/channel_strips.h"
#include "worker/backend/cpu/kernels.h"

namespace muster::cpu {
namespace {

// Adds the sums of x - shift and of its square over `rows` rows of V vectors of channels. U rows
// are processed together, so that there are enough independent sums to keep the adders busy.
template <typename Vec, int V, typename T>
void AddShiftedSums(const T* x, int64_t rows, int64_t row_stride, const float* shift, double* sum,
                    double* squares) {
  constexpr int U = 4 / V;
  Vec k[V], s[U][V], q[U][V];
  for (int v = 0; v < V; ++v) {
    k[v] = Load<Vec>(shift + v * kWidth<Vec>);
    for (int u = 0; u < U; ++u) s[u][v] = q[u][v] = Vec{};
  }
  const auto add_row = [&](const T* row, int u) {
    for (int v = 0; v < V; ++v) {
      const Vec d = Load<Vec>(row + v * kWidth<Vec>) - k[v];
      s[u][v] += d;
      q[u][v] += d * d;
    }
  };
  int64_t r = 0;
  for (; r + U <= rows; r += U) {
    for (int u = 0; u < U; ++u) add_row(x + (r + u) * row_stride, u);
  }
  for (; r < rows; ++r) add_row(x + r * row_stride, 0);
  for (int u = 0; u < U; ++u) {
    for (int v = 0; v < V; ++v) {
      AddTo(sum + v * kWidth<Vec>, s[u][v]);
      AddTo(squares + v * kWidth<Vec>, q[u][v]);
    }
  }
}

template <typename T>
void AddBlock(const T* x, int64_t rows, int64_t channels, const float* shift, double* sum,
              double* squares) {
  ForChannelStrips<4>(channels, [&]<typename Vec, int V>(int64_t c) {
    AddShiftedSums<Vec, V>(x + c, rows, channels, shift + c, sum + c, squares + c);
  });
}

}  // namespace

BatchStatistics::BatchStatistics(int64_t rows, int64_t channels)
    : rows_(rows),
      channels_(channels),
      parts_(rows, channels),
      stride_((channels + 15) / 16 * 16) {}

// Two doubles and a float for each channel of each part.
size_t BatchStatistics::scratch_floats() const { return parts_.count() * stride_ * 5; }

BatchStatistics::Sums BatchStatistics::SumsOf(int64_t part, float* scratch) const {
  float* const at = scratch + part * stride_ * 5;
  auto* const sum = reinterpret_cast<double*>(at);
  return {sum, sum + stride_, at + 4 * stride_};
}

template <typename T>
void BatchStatistics::Run(const T* x, float* scratch, float* mean, float* variance) const {
  ParallelFor(parts_.count(), [&](int64_t part) { SumPart(x, part, SumsOf(part, scratch)); });
  Combine(scratch, mean, variance);
}

template <typename T>
void BatchStatistics::SumPart(const T* x, int64_t part, const Sums& sums) const {
  bool first = true;
  parts_.ForBlocks(part, [&](int64_t row, int64_t rows) {
    const T* const block = x + row * channels_;
    if (first) {
      std::fill_n(sums.shift, channels_, 0.0f);
      std::fill_n(sums.sum, channels_, 0.0);
      std::fill_n(sums.squares, channels_, 0.0);
      AddBlock(block, rows, channels_, sums.shift, sums.sum, sums.squares);
      for (int64_t c = 0; c < channels_; ++c) {
        sums.shift[c] = static_cast<float>(sums.sum[c] / static_cast<double>(rows));
      }
      std::fill_n(sums.sum, channels_, 0.0);
      std::fill_n(sums.squares, channels_, 0.0);
      first = false;
    }
    AddBlock(block, rows, channels_, sums.shift, sums.sum, sums.squares);
  });
}

// Combines all parts into the first one, where `sum` becomes the mean so far and `squares` becomes
// the sum of the squared distances from it.
void BatchStatistics::Combine(float* scratch, float* mean, float* variance) const {
  const Sums total = SumsOf(0, scratch);
  double n = 0;
  for (int64_t part = 0; part < parts_.count(); ++part) {
    const Sums next = SumsOf(part, scratch);
    const auto m = static_cast<double>(parts_.Part(part).size());
    const double share = m / (n + m), weight = n * share, inverse = 1 / m;
    for (int64_t c = 0; c < channels_; ++c) {
      const double offset = next.sum[c] * inverse;
      const double part_mean = next.shift[c] + offset;
      const double distances = next.squares[c] - next.sum[c] * offset;
      const double before = part == 0 ? part_mean : total.sum[c];
      const double difference = part_mean - before;
      total.squares[c] =
          (part == 0 ? 0 : total.squares[c]) + distances + difference * difference * weight;
      total.sum[c] = before + difference * share;
    }
    n += m;
  }
  for (int64_t c = 0; c < channels_; ++c) {
    mean[c] = static_cast<float>(total.sum[c]);
    // Not std::max: NaN must propagate.
    const double v = total.squares[c] / static_cast<double>(rows_);
    variance[c] = v < 0 ? 0.0f : static_cast<float>(v);
  }
}

template void BatchStatistics::Run(const float*, float*, float*, float*) const;
template void BatchStatistics::Run(const Bf16*, float*, float*, float*) const;

}  // namespace muster::cpu
