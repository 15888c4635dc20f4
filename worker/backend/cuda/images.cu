// Makes batches from stored images. Each operation corresponds to one in worker/data/preprocess.cc
// and augmentation.cc, in the same order, with a fused multiply-add wherever the host's compiler
// uses one. The host and the GPU therefore make batches with the same bits. Also scales and mirrors
// images.
#include <cmath>

#include "common/base/reflected.h"
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"
#include "worker/backend/cuda/philox.h"

namespace muster::cuda {
namespace {

struct Choices {
  ImagePlace place;
  float brightness, contrast;
};

__device__ inline int Pick(uint32_t bits, int choices) {
  return static_cast<int>((static_cast<uint64_t>(bits) * static_cast<uint64_t>(choices)) >> 32);
}

// Chooses like DrawAugmentation, or like CentreCrop if the plan does not augment.
__device__ inline Choices Choose(const ImagePlan& plan, int64_t sample) {
  if (!plan.augment) {
    const ImagePlace centre = {(plan.height - plan.crop_height) / 2,
                               (plan.width - plan.crop_width) / 2, false};
    return {centre, 0.0f, 1.0f};
  }
  const auto id = static_cast<uint64_t>(sample);
  const auto block = [&](uint32_t epoch, uint32_t index) {
    return PhiloxBits({{epoch, static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), index}},
                      plan.key[0], plan.key[1]);
  };
  const Bits first = block(plan.epoch, 0);
  const int rows = plan.height + 2 * plan.padding - plan.crop_height + 1;
  const int columns = plan.width + 2 * plan.padding - plan.crop_width + 1;
  const ImagePlace place = {
      Pick(first.at[0], rows) - plan.padding, Pick(first.at[1], columns) - plan.padding,
      plan.flip && (plan.alternate_flip ? ((block(0, 0).at[2] >> 31) ^ (plan.epoch & 1)) != 0
                                        : (first.at[2] >> 31) != 0)};
  const float brightness = plan.brightness * (2 * ToUniform(first.at[3]) - 1);
  const float low = plan.contrast_low, high = plan.contrast_high;
  const float contrast =
      low == high ? low : fmaf(high - low, ToUniform(block(plan.epoch, 1).at[0]), low);
  return {place, brightness, contrast};
}

// Clamps `value` to 0 … `size`.
__device__ inline int Clamp(int value, int size) {
  return value < 0 ? 0 : value > size ? size : value;
}

// One warp per channel of each image. The pixels are integers, so the order of summation does not
// matter.
__global__ void MeasureImagesKernel(ImagePlan plan, ImageBatch batch) {
  const int64_t all = int64_t{batch.count} * plan.channels;
  for (int64_t i = ThreadInGrid() / 32; i < all; i += ThreadsOfGrid() / 32) {
    const int64_t sample = batch.sample_ids[i / plan.channels];
    const ImagePlace place = Choose(plan, sample).place;
    // Black padding adds nothing, so it is left out.
    const bool all_of_it = plan.reflect;
    const int row = all_of_it ? 0 : Clamp(-place.top, plan.crop_height);
    const int column = all_of_it ? 0 : Clamp(-place.left, plan.crop_width);
    const int last_row =
        all_of_it ? plan.crop_height : Clamp(plan.height - place.top, plan.crop_height);
    const int last_column =
        all_of_it ? plan.crop_width : Clamp(plan.width - place.left, plan.crop_width);
    const int rows = last_row - row, columns = last_column - column;
    const uint8_t* const pixels =
        batch.images + sample * plan.stored() + (i % plan.channels) * plan.height * plan.width;
    uint64_t sum = 0, squares = 0;
    for (int at = Lane(); at < rows * columns; at += 32) {
      const int down = at / columns;
      const int64_t y = Reflected(place.top + row + down, plan.height);
      const int64_t x = Reflected(place.left + column + (at - down * columns), plan.width);
      const uint32_t pixel = pixels[y * plan.width + x];
      sum += pixel;
      squares += pixel * pixel;
    }
    sum = WarpSum(sum);
    squares = WarpSum(squares);
    if (Lane() == 0) batch.sums[i] = {sum, squares};
  }
}

struct Moments {
  double mean, variance;
};

__device__ inline Moments MomentsOf(const ImageSums& sums, int64_t n) {
  const auto count = static_cast<double>(n);
  const auto spread =
      static_cast<double>(sums.squares * static_cast<uint64_t>(n) - sums.sum * sums.sum);
  return {static_cast<double>(sums.sum) / count, spread / (count * count)};
}

// One thread per image. It computes the map of each channel.
__global__ void MUSTER_FOUR_BLOCKS MapImagesKernel(ImagePlan plan, ImageBatch batch) {
  const int64_t n = int64_t{plan.crop_height} * plan.crop_width;
  for (int64_t i = ThreadInGrid(); i < batch.count; i += ThreadsOfGrid()) {
    const Choices choices = Choose(plan, batch.sample_ids[i]);
    batch.places[i] = choices.place;
    const bool measured = plan.standardize || choices.contrast != 1;
    const auto moments = [&](int channel) {
      if (!measured) return Moments{0, 0};
      return MomentsOf(batch.sums[i * plan.channels + channel], n);
    };
    double mean = 0, divisor = 255;
    if (plan.standardize) {
      double variance = 0;
      for (int k = 0; k < plan.channels; ++k) {
        mean += (moments(k).mean + choices.brightness) / plan.channels;
      }
      for (int k = 0; k < plan.channels; ++k) {
        const Moments m = moments(k);
        const double distance = m.mean + choices.brightness - mean;
        const double squared = choices.contrast * choices.contrast;  // computed in float
        variance += fma(squared, m.variance, distance * distance) / plan.channels;
      }
      const double floor = 1 / sqrt(static_cast<double>(plan.cropped()));
      divisor = sqrt(variance);
      divisor = divisor < floor ? floor : divisor;
    }
    for (int k = 0; k < plan.channels; ++k) {
      if (plan.normalizes) {
        mean = plan.mean[k];
        divisor = plan.stddev[k];
      }
      const double centre = moments(k).mean;
      batch.maps[i * plan.channels + k] = {
          static_cast<float>(centre), static_cast<float>(choices.contrast / divisor),
          static_cast<float>((centre + choices.brightness - mean) / divisor)};
    }
  }
}

// One thread per value of the batch.
template <typename T>
__global__ void ConvertImagesKernel(ImagePlan plan, PlaceDivisors divisors, ImageBatch batch, T* to,
                                    uint32_t all) {
  for (uint32_t i = ThreadInGrid(); i < all; i += ThreadsOfGrid()) {
    const Place at = divisors.Of(i);
    const ImagePlace place = batch.places[at.n];
    int y = place.top + at.row;
    int x = place.left + (place.flip ? plan.crop_width - 1 - at.column : at.column);
    if (plan.reflect) {
      y = Reflected(y, plan.height);
      x = Reflected(x, plan.width);
    }
    float pixel = 0;  // padding
    if (0 <= y && y < plan.height && 0 <= x && x < plan.width) {
      pixel = batch.images[batch.sample_ids[at.n] * plan.stored() +
                           (at.channel * plan.height + y) * plan.width + x];
    }
    const ImageMap map = batch.maps[at.n * plan.channels + at.channel];
    to[i] = FromFloat<T>(fmaf(pixel - map.centre, map.scale, map.offset));
  }
}

__global__ void GatherLabelsKernel(const int32_t* labels, const int64_t* sample_ids, int32_t* to,
                                   int64_t count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) to[i] = labels[sample_ids[i]];
}

// One thread per value.
template <typename T>
__global__ void ScalePixelsKernel(T* to, const uint8_t* from, uint32_t count, Divisor channels,
                                  PixelScale scale) {
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const uint32_t k = channels.Split(i).rest;
    to[i] = FromFloat<T>((static_cast<float>(from[i]) - scale.centre[k]) * scale.scale[k]);
  }
}

// One thread per value.
template <typename T>
__global__ void MirrorImagesKernel(T* to, const T* from, uint32_t count, Divisor width,
                                   Divisor channels) {
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const uint32_t column = width.Split(channels.Quotient(i)).rest;
    to[i] = from[i + (width.of() - 1 - 2 * column) * channels.of()];
  }
}

}  // namespace

template <typename T>
void MakeImages(const Target& target, const ImagePlan& plan, const ImageBatch& batch, T* to) {
  const int64_t count = batch.count;
  if (plan.measures()) {
    LaunchWarps(target, count * plan.channels, MeasureImagesKernel, plan, batch);
  }
  LaunchOver(target, count, MapImagesKernel, plan, batch);
  const PlaceDivisors divisors(plan.crop_height, plan.crop_width, plan.channels);
  LaunchOver(target, count * plan.cropped(), ConvertImagesKernel<T>, plan, divisors, batch, to,
             count * plan.cropped());
}

void GatherLabels(const Target& target, const int32_t* labels, const int64_t* sample_ids,
                  int32_t* to, int count) {
  LaunchOver(target, count, GatherLabelsKernel, labels, sample_ids, to, count);
}

template <typename T>
void ScalePixels(const Target& target, T* to, const uint8_t* from, int64_t count,
                 const PixelScale& scale) {
  LaunchOver(target, count, ScalePixelsKernel<T>, to, from, count,
             Divisor(static_cast<int>(scale.channels)), scale);
}

template <typename T>
void MirrorImages(const Target& target, T* to, const T* from, int64_t count, int width,
                  int channels) {
  LaunchOver(target, count, MirrorImagesKernel<T>, to, from, count, Divisor(width),
             Divisor(channels));
}

#define MUSTER_INSTANTIATE(T)                                                               \
  template void ScalePixels(const Target&, T*, const uint8_t*, int64_t, const PixelScale&); \
  template void MakeImages(const Target&, const ImagePlan&, const ImageBatch&, T*);         \
  template void MirrorImages(const Target&, T*, const T*, int64_t, int, int);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
