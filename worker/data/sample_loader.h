// Converts stored samples to the network's input.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>

#include "common/graph/pixel_scale.h"
#include "common/graph/shape.h"

namespace muster {

// Scratch memory of a thread, reused for each sample.
class LoaderScratch {
 public:
  virtual ~LoaderScratch() = default;
};

// Where to write an image: as floats or, if the loader has a pixel_scale(), as bytes for it.
using ImageTarget = std::variant<float*, uint8_t*>;

// Immutable: any thread may use it with its own scratch. The output is a pure function of the
// arguments and the data. Train and Evaluate write shape().elements() values to `image`,
// [row][column][channel], and throw Error(kData) for a sample that cannot be read.
class SampleLoader {
 public:
  virtual ~SampleLoader() = default;
  virtual Shape shape() const = 0;
  // What makes the floats of an image from its bytes, or null if this loader makes only floats.
  virtual const PixelScale* pixel_scale() const { return nullptr; }
  virtual std::unique_ptr<LoaderScratch> MakeScratch() const = 0;
  // Applies the random choices of this sample in this epoch.
  virtual void Train(int64_t sample, uint64_t seed, int64_t epoch, LoaderScratch& scratch,
                     ImageTarget image) const = 0;
  virtual void Evaluate(int64_t sample, LoaderScratch& scratch, ImageTarget image) const = 0;
};

}  // namespace muster
