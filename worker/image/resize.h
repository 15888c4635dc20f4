// Resizes decoded pixels to a sample of 8-bit pixels.
//
// The arithmetic is Pillow's: weights with 22 fractional bits; first all rows, rounded to 8 bits,
// then all columns. It uses only integers, so the bits depend neither on the compiler nor on the
// processor, and the bilinear filter gives Pillow's bits.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/image/crop.h"
#include "worker/image/image.h"

namespace muster {

enum class ResizeFilter {
  // Pillow's BILINEAR, and torchvision's with antialias=True: a triangle that widens with the
  // reduction.
  kBilinear,
  // The mean over the area of a result pixel; partly covered pixels are weighted by their covered
  // share.
  kArea,
};

// Scratch memory, reused between calls.
struct ResizeScratch {
  // For each row or column of the window: the number of pixels that contribute, and the first one.
  struct Axis {
    std::vector<int64_t> first, count;
    std::vector<int32_t> weights;  // [row or column][count], each with space for `stride`
    int64_t stride = 0;
  };
  Axis rows, columns;
  std::vector<int64_t> raw;  // the weights of one pixel
  std::vector<uint8_t> resized;
  std::vector<int32_t> source, sums;  // one row each
};

// Returns the region of pixels that Resize uses for this sample, at least one. It must be decoded.
ImageBox NeededRegion(const SampleGeometry& geometry, ResizeFilter filter);

// The largest reduction, 1, 2, 4 or 8, at which a decoded region is not smaller than its resized
// size. A sample from a reduced image is similar but not equal, and faster to decode.
int64_t LargestReduction(const SampleGeometry& geometry);

// Writes window.height x window.width x image.channels to `sample`, [row][column][channel]. `image`
// must contain NeededRegion. Pixels outside geometry.region do not contribute (up to the size of a
// reduced pixel), as if the region had been cut out first.
void Resize(const Image& image, const SampleGeometry& geometry, ResizeFilter filter,
            ResizeScratch& scratch, uint8_t* sample);

}  // namespace muster
