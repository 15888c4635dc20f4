#include "worker/backend/cpu/few_channels_gradient.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "common/plan/slices.h"
#include "worker/backend/cpu/team.h"
#include "worker/backend/cpu/vec.h"

namespace muster::cpu {
namespace {

size_t RoundUp(int64_t floats) { return static_cast<size_t>((floats + 15) / 16 * 16); }

// A block of the innermost loop: `kTaps` floats of a window's row times kVectors * 8 filters, whose
// sums stay in registers (6 x 2 of 16) over `rows` x `columns` outputs.
struct Tile {
  const float* image;     // the first tap of the first output
  int64_t image_row;      // floats between the taps of consecutive output rows
  int64_t image_column;   // floats between the taps of consecutive outputs
  const float* gradient;  // the first filter of the first output
  int64_t rows, columns, filters;
};

template <int kTaps, int kVectors>
void AddTile(const Tile& tile, float* sums) {
  FloatVec sum[kTaps][kVectors];
  for (int t = 0; t < kTaps; ++t) {
    for (int v = 0; v < kVectors; ++v) sum[t][v] = LoadFloats(sums + t * tile.filters + v * kLanes);
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    const float* x = tile.image + r * tile.image_row;
    const float* dy = tile.gradient + r * tile.columns * tile.filters;
    for (int64_t c = 0; c < tile.columns; ++c) {
      FloatVec g[kVectors];
      for (int v = 0; v < kVectors; ++v) g[v] = LoadFloats(dy + v * kLanes);
      for (int t = 0; t < kTaps; ++t) {
        const FloatVec tap = Broadcast(x[t]);
        for (int v = 0; v < kVectors; ++v) sum[t][v] += tap * g[v];
      }
      x += tile.image_column;
      dy += tile.filters;
    }
  }
  for (int t = 0; t < kTaps; ++t) {
    for (int v = 0; v < kVectors; ++v) Store(sums + t * tile.filters + v * kLanes, sum[t][v]);
  }
}

template <int kVectors>
void AddTaps(const Tile& tile, int64_t taps, float* sums) {
  switch (taps) {
    case 1:
      return AddTile<1, kVectors>(tile, sums);
    case 2:
      return AddTile<2, kVectors>(tile, sums);
    case 3:
      return AddTile<3, kVectors>(tile, sums);
    case 4:
      return AddTile<4, kVectors>(tile, sums);
    case 5:
      return AddTile<5, kVectors>(tile, sums);
    default:
      return AddTile<6, kVectors>(tile, sums);
  }
}

}  // namespace

bool FewChannelsGradient::Fits(const Layer& layer) {
  const auto& spec = std::get<Conv2dSpec>(layer.spec);
  return spec.groups == 1 && layer.input_shape.channels <= 4 && spec.filters % kLanes == 0 &&
         __builtin_cpu_supports("avx2") && !__builtin_cpu_supports("avx512f");
}

FewChannelsGradient::FewChannelsGradient(const Layer& layer, int64_t batch)
    : batch_(batch),
      in_(layer.input_shape),
      out_(layer.output_shape),
      spec_(std::get<Conv2dSpec>(layer.spec)),
      row_floats_((in_.width + spec_.pads.left + spec_.pads.right) * in_.channels),
      row_taps_(spec_.kernel_width * in_.channels),
      image_floats_(RoundUp((in_.height + spec_.pads.top + spec_.pads.bottom) * row_floats_)),
      sum_floats_(RoundUp((spec_.kernel_height * row_taps_ + 1) * spec_.filters)),
      threads_(static_cast<size_t>(omp_get_max_threads())),
      thread_floats_(image_floats_ + 2 * sum_floats_) {}

FewChannelsGradient::Scratch FewChannelsGradient::ScratchOf(size_t thread, float* scratch) const {
  float* const begin = scratch + thread * thread_floats_;
  return {begin, begin + image_floats_, begin + image_floats_ + sum_floats_};
}

void FewChannelsGradient::PadImage(const float* source, float* image) const {
  for (int64_t row = 0; row < in_.height; ++row) {
    std::memcpy(image + (row + spec_.pads.top) * row_floats_ + spec_.pads.left * in_.channels,
                source + row * in_.width * in_.channels,
                static_cast<size_t>(in_.width * in_.channels) * sizeof(float));
  }
}

void FewChannelsGradient::AddImage(const float* image, const float* output_gradient,
                                   float* sums) const {
  // The size of a tile's gradient rows. They fit into the L1 cache beside the sums.
  constexpr int64_t kTileFloats = 3072;
  constexpr int64_t kMaxTaps = 6;
  const int64_t rows_at_a_time = std::max<int64_t>(1, kTileFloats / (out_.width * spec_.filters));
  for (int64_t first = 0; first < out_.height; first += rows_at_a_time) {
    Tile tile{.image = nullptr,
              .image_row = spec_.stride_height * row_floats_,
              .image_column = spec_.stride_width * in_.channels,
              .gradient = nullptr,
              .rows = std::min(rows_at_a_time, out_.height - first),
              .columns = out_.width,
              .filters = spec_.filters};
    const float* const gradient = output_gradient + first * out_.width * spec_.filters;
    for (int64_t kh = 0; kh < spec_.kernel_height; ++kh) {
      const float* const row = image + (first * spec_.stride_height + kh) * row_floats_;
      for (int64_t tap = 0; tap < row_taps_; tap += kMaxTaps) {
        const int64_t taps = std::min(kMaxTaps, row_taps_ - tap);
        tile.image = row + tap;
        float* const tap_sums = sums + (kh * row_taps_ + tap) * spec_.filters;
        int64_t filter = 0;
        for (; filter + 2 * kLanes <= spec_.filters; filter += 2 * kLanes) {
          tile.gradient = gradient + filter;
          AddTaps<2>(tile, taps, tap_sums + filter);
        }
        for (; filter < spec_.filters; filter += kLanes) {
          tile.gradient = gradient + filter;
          AddTaps<1>(tile, taps, tap_sums + filter);
        }
      }
    }
  }
}

void FewChannelsGradient::AddBias(const float* output_gradient, float* sums) const {
  for (int64_t pixel = 0; pixel < out_.height * out_.width; ++pixel) {
    const float* const dy = output_gradient + pixel * spec_.filters;
#pragma omp simd
    for (int64_t f = 0; f < spec_.filters; ++f) sums[f] += dy[f];
  }
}

void FewChannelsGradient::Run(const float* source, const float* output_gradient,
                              float* weights_gradient, float* bias_gradient, float* scratch) const {
  const int64_t in_floats = in_.elements(), out_floats = out_.elements();
  const auto bias_at = static_cast<size_t>(spec_.kernel_height * row_taps_ * spec_.filters);
  InTeam(static_cast<int>(threads_), [&](int number) {
    const auto thread = static_cast<size_t>(number);
    const Scratch mine = ScratchOf(thread, scratch);
    std::fill_n(mine.image, image_floats_, 0.0f);
    std::fill_n(mine.sums, sum_floats_, 0.0f);
    const Range images =
        EvenPart(batch_, static_cast<int64_t>(threads_), static_cast<int64_t>(thread));
    for (int64_t n = images.begin; n < images.end; ++n) {
      // Summing each image separately keeps each sum short, which limits its rounding error.
      std::fill_n(mine.image_sums, sum_floats_, 0.0f);
      PadImage(source + n * in_floats, mine.image);
      AddImage(mine.image, output_gradient + n * out_floats, mine.image_sums);
      if (bias_gradient != nullptr) {
        AddBias(output_gradient + n * out_floats, mine.image_sums + bias_at);
      }
#pragma omp simd
      for (size_t i = 0; i < sum_floats_; ++i) mine.sums[i] += mine.image_sums[i];
    }
  });
  float* const total = ScratchOf(0, scratch).sums;
  for (size_t thread = 1; thread < threads_; ++thread) {
    const float* const more = ScratchOf(thread, scratch).sums;
    for (size_t i = 0; i < sum_floats_; ++i) total[i] += more[i];
  }
  // [taps][filters] → [filters][taps]
  const int64_t taps = spec_.kernel_height * row_taps_;
  for (int64_t f = 0; f < spec_.filters; ++f) {
    for (int64_t t = 0; t < taps; ++t)
      weights_gradient[f * taps + t] = total[t * spec_.filters + f];
  }
  if (bias_gradient != nullptr) {
    std::memcpy(bias_gradient, total + bias_at, static_cast<size_t>(spec_.filters) * sizeof(float));
  }
}

}  // namespace muster::cpu
