// Converts stored samples to the network's input.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/graph/shape.h"

namespace muster {

// Scratch memory of a thread, reused for each sample.
class LoaderScratch {
 public:
  virtual ~LoaderScratch() = default;
};

// Immutable: any thread may use it with its own scratch. The output is a pure function of the
// arguments and the data. Train and Evaluate write shape().elements() floats to `image`,
// [row][column][channel], and throw Error(kData) for a sample that cannot be read.
class SampleLoader {
 public:
  virtual ~SampleLoader() = default;
  virtual Shape shape() const = 0;
  virtual std::unique_ptr<LoaderScratch> MakeScratch() const = 0;
  // Applies the random choices of this sample in this epoch.
  virtual void Train(int64_t sample, uint64_t seed, int64_t epoch, LoaderScratch& scratch,
                     float* image) const = 0;
  virtual void Evaluate(int64_t sample, LoaderScratch& scratch, float* image) const = 0;
};

}  // namespace muster
