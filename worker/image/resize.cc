#include "worker/image/resize.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "common/base/error.h"
#include "common/base/reflected.h"

namespace muster {
namespace {

constexpr int kWeightBits = 22;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);  // for rounding a sum
constexpr int32_t kWhite = 255;

int64_t FloorDivide(int64_t x, int64_t y) { return x / y - (x % y < 0 ? 1 : 0); }
int64_t CeilDivide(int64_t x, int64_t y) { return -FloorDivide(-x, y); }

struct Range {
  int64_t begin = 0, end = 0;
};

// One direction of a resize. Positions in the photo are integers in units of 1 / (2 resized) of its
// pixels: a pixel of the image has the length `pixel`, and one of the resized region has 2
// `length`.
class Direction {
 public:
  // The image has `pixels` pixels, each `reduction` long, starting at the photo's pixel `origin`.
  // The region is [begin, begin + length) of the photo; it is resized to `resized` pixels.
  Direction(int64_t origin, int64_t pixels, int64_t reduction, int64_t begin, int64_t length,
            int64_t resized, ResizeFilter filter)
      : origin_(2 * resized * origin),
        pixel_(2 * resized * reduction),
        begin_(2 * resized * begin),
        length_(length),
        filter_(filter),
        reach_(filter == ResizeFilter::kArea ? length : std::max(2 * length, pixel_)),
        inside_{std::max<int64_t>(FloorDivide(begin - origin, reduction), 0),
                std::min(CeilDivide(begin + length - origin, reduction), pixels)} {}

  // The image's pixels that contribute to pixel `at` of the resized region, and possibly one more
  // at each end.
  Range Reach(int64_t at) const {
    const int64_t centre = Centre(at) - origin_;
    return {std::max(FloorDivide(centre - reach_, pixel_), inside_.begin),
            std::min(CeilDivide(centre + reach_, pixel_), inside_.end)};
  }

  // Returns the weight of the image's pixel `pixel` in pixel `at` of the resized region. Weights
  // are not normalized.
  int64_t Weight(int64_t at, int64_t pixel) const {
    const int64_t start = origin_ + pixel * pixel_, centre = Centre(at);
    const int64_t weight =
        filter_ == ResizeFilter::kArea
            ? std::min(start + pixel_, centre + reach_) - std::max(start, centre - reach_)
            : reach_ - std::abs(start + pixel_ / 2 - centre);
    return std::max<int64_t>(weight, 0);
  }

  // The maximum number of image pixels that contribute to one pixel of the result.
  int64_t MostPixels() const { return 2 * reach_ / pixel_ + 2; }

 private:
  int64_t Centre(int64_t at) const { return begin_ + (2 * at + 1) * length_; }

  int64_t origin_, pixel_, begin_, length_;
  ResizeFilter filter_;
  int64_t reach_;
  Range inside_;
};

Direction Rows(const Image& image, const SampleGeometry& geometry, ResizeFilter filter) {
  return {image.top,
          image.height,
          image.reduction,
          geometry.region.top,
          geometry.region.height,
          geometry.resized.height,
          filter};
}

Direction Columns(const Image& image, const SampleGeometry& geometry, ResizeFilter filter) {
  return {image.left,
          image.width,
          image.reduction,
          geometry.region.left,
          geometry.region.width,
          geometry.resized.width,
          filter};
}

// Returns the pixel of the resized region, which is `size` long, that appears at position `at`.
// `at` may lie outside the region. -1 means black.
int64_t Padded(int64_t at, int64_t size, ImagePadding padding) {
  if (at >= 0 && at < size) return at;
  return padding == ImagePadding::kZero ? -1 : Reflected(at, size);
}

// Returns the range of the image's pixels that the window needs, at least one.
Range Needed(const Direction& direction, int64_t begin, int64_t length, int64_t resized,
             ImagePadding padding) {
  Range needed{INT64_MAX, 0};
  for (int64_t i = begin; i < begin + length; ++i) {
    const int64_t at = Padded(i, resized, padding);
    if (at < 0) continue;
    const Range reach = direction.Reach(at);
    needed = {std::min(needed.begin, reach.begin), std::max(needed.end, reach.end)};
  }
  if (needed.end == 0) needed = {direction.Reach(0).begin, direction.Reach(0).begin + 1};
  return needed;
}

// Computes the weights of the window's pixels [begin, begin + length), from right to left if
// flipped.
void FillAxis(const Direction& direction, int64_t begin, int64_t length, int64_t resized,
              ImagePadding padding, bool flip, std::vector<int64_t>& raw,
              ResizeScratch::Axis& axis) {
  axis.stride = direction.MostPixels();
  axis.first.assign(static_cast<size_t>(length), 0);
  axis.count.assign(static_cast<size_t>(length), 0);
  axis.weights.resize(static_cast<size_t>(length * axis.stride));
  raw.resize(static_cast<size_t>(axis.stride));
  for (int64_t i = 0; i < length; ++i) {
    const int64_t at = Padded(begin + (flip ? length - 1 - i : i), resized, padding);
    if (at < 0) continue;
    Range reach = direction.Reach(at);
    while (reach.begin < reach.end && direction.Weight(at, reach.begin) == 0) ++reach.begin;
    while (reach.begin < reach.end && direction.Weight(at, reach.end - 1) == 0) --reach.end;
    const int64_t count = reach.end - reach.begin;
    MUSTER_CHECK(count > 0 && count <= axis.stride);
    int64_t sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += raw[k] = direction.Weight(at, reach.begin + k);
    int32_t* weights = axis.weights.data() + i * axis.stride;
    for (int64_t k = 0; k < count; ++k) {
      weights[k] = static_cast<int32_t>(((raw[k] << kWeightBits) + sum / 2) / sum);
    }
    axis.first[i] = reach.begin;
    axis.count[i] = count;
  }
}

// Resizes one row of the image, whose bytes have been widened, to one row of the window. Three
// channels are computed as lanes of a vector of four, so one value beyond the end of `row` is read.
template <int kChannels>
void ResizeRow(const int32_t* row, const ResizeScratch::Axis& columns, uint8_t* out) {
  constexpr int kLanes = kChannels == 1 ? 1 : 4;
  using Vector [[gnu::vector_size(16)]] = int32_t;
  using Values = std::conditional_t<kLanes == 1, int32_t, Vector>;
  const Values white = Values{} + kWhite;
  const auto width = static_cast<int64_t>(columns.first.size());
  for (int64_t i = 0; i < width; ++i, out += kChannels) {
    const int32_t* pixel = row + columns.first[i] * kChannels;
    const int32_t* weights = columns.weights.data() + i * columns.stride;
    Values sums = Values{} + kHalf;
    for (int64_t k = 0; k < columns.count[i]; ++k, pixel += kChannels) {
      Values values;
      std::memcpy(&values, pixel, sizeof values);
      sums += values * weights[k];
    }
    sums >>= kWeightBits;
    sums = sums > white ? white : sums;
    int32_t channels[kLanes];
    std::memcpy(channels, &sums, sizeof sums);
    for (int k = 0; k < kChannels; ++k) out[k] = static_cast<uint8_t>(channels[k]);
  }
}

}  // namespace

ImageBox NeededRegion(const SampleGeometry& geometry, ResizeFilter filter) {
  const ImageBox& region = geometry.region;
  const ImageBox& window = geometry.window;
  Image photo;  // as much of it as the region needs
  photo.height = region.top + region.height;
  photo.width = region.left + region.width;
  const Range rows = Needed(Rows(photo, geometry, filter), window.top, window.height,
                            geometry.resized.height, geometry.padding);
  const Range columns = Needed(Columns(photo, geometry, filter), window.left, window.width,
                               geometry.resized.width, geometry.padding);
  return {rows.begin, columns.begin, rows.end - rows.begin, columns.end - columns.begin};
}

int64_t LargestReduction(const SampleGeometry& geometry) {
  for (const int64_t reduction : {8, 4, 2}) {
    if (geometry.region.height >= reduction * geometry.resized.height &&
        geometry.region.width >= reduction * geometry.resized.width) {
      return reduction;
    }
  }
  return 1;
}

void Resize(const Image& image, const SampleGeometry& geometry, ResizeFilter filter,
            ResizeScratch& scratch, uint8_t* sample) {
  const ImageBox& window = geometry.window;
  const Direction down = Rows(image, geometry, filter);
  const Direction right = Columns(image, geometry, filter);
  FillAxis(down, window.top, window.height, geometry.resized.height, geometry.padding, false,
           scratch.raw, scratch.rows);
  FillAxis(right, window.left, window.width, geometry.resized.width, geometry.padding,
           geometry.flip, scratch.raw, scratch.columns);

  // First resizes along the rows that are needed.
  const Range needed =
      Needed(down, window.top, window.height, geometry.resized.height, geometry.padding);
  const int64_t source_row = image.width * image.channels, row = window.width * image.channels;
  scratch.source.resize(static_cast<size_t>(source_row) + 1);
  scratch.resized.resize(static_cast<size_t>((needed.end - needed.begin) * row));
  uint8_t* resized = scratch.resized.data();
  for (int64_t y = needed.begin; y < needed.end; ++y, resized += row) {
    std::copy_n(image.pixels.data() + y * source_row, source_row, scratch.source.data());
    if (image.channels == 3) {
      ResizeRow<3>(scratch.source.data(), scratch.columns, resized);
    } else {
      ResizeRow<1>(scratch.source.data(), scratch.columns, resized);
    }
  }

  // Then resizes along the columns.
  scratch.sums.resize(static_cast<size_t>(row));
  int32_t* sums = scratch.sums.data();
  for (int64_t y = 0; y < window.height; ++y, sample += row) {
    if (scratch.rows.count[y] == 0) {  // black padding
      std::fill_n(sample, row, 0);
      continue;
    }
    std::fill_n(sums, row, kHalf);
    const int32_t* weights = scratch.rows.weights.data() + y * scratch.rows.stride;
    const uint8_t* source = scratch.resized.data() + (scratch.rows.first[y] - needed.begin) * row;
    for (int64_t k = 0; k < scratch.rows.count[y]; ++k, source += row) {
      for (int64_t x = 0; x < row; ++x) sums[x] += weights[k] * source[x];
    }
    for (int64_t x = 0; x < row; ++x) {
      sample[x] = static_cast<uint8_t>(std::min(sums[x] >> kWeightBits, kWhite));
    }
  }
}

}  // namespace muster
