// Turns decoded pixels into a sample of 8-bit pixels.
//
// The arithmetic is that of Pillow: weights of 22 bits after the point, first all rows, rounded to
// 8 bits, then all columns. It is all in integers, so the bits depend neither on the compiler nor
// on the processor, and the bilinear filter gives Pillow's bits.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/image/crop.h"
#include "worker/image/image.h"

namespace muster {

enum class ResizeFilter {
  // Pillow's BILINEAR, torchvision's with antialias=True: a triangle, which is as much wider as the
  // region shrinks.
  kBilinear,
  // The mean of the area that a pixel of the result covers; parts of pixels count as parts.
  kArea,
};

// Memory that is kept from one call to the next.
struct ResizeScratch {
  // For each row or column of the window: how many pixels it is made of, and from which one on.
  struct Axis {
    std::vector<int64_t> first, count;
    std::vector<int32_t> weights;  // [row or column][count], each with room for `stride`
    int64_t stride = 0;
  };
  Axis rows, columns;
  std::vector<int64_t> raw;  // the weights of one pixel
  std::vector<uint8_t> resized;
  std::vector<int32_t> source, sums;  // one row
};

// The pixels that Resize uses for this sample, at least one. Decode this region.
ImageBox NeededRegion(const SampleGeometry& geometry, ResizeFilter filter);

// The largest reduction, 1, 2, 4 or 8, at which a decoded region is no smaller than what it is
// resized to. A sample from a reduced image is not the same, but close, and faster to decode.
int64_t LargestReduction(const SampleGeometry& geometry);

// Writes window.height x window.width x image.channels to `sample`, [row][column][channel]. `image`
// has NeededRegion in it. Pixels outside of geometry.region do not count (up to the size of a
// reduced pixel), as if the region had been cut out first.
void Resize(const Image& image, const SampleGeometry& geometry, ResizeFilter filter,
            ResizeScratch& scratch, uint8_t* sample);

}  // namespace muster
