// Converts stored pixels to the network's input, by the steps of config.Preprocess.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/graph/shape.h"
#include "proto/config.pb.h"
#include "worker/data/augmentation.h"
#include "worker/data/dataset.h"
#include "worker/data/sample_loader.h"

namespace muster {

// Immutable and cheap to copy; any thread may use it.
class Preprocessor {
 public:
  // Throws Error(kUsage) for settings that contradict each other or the stored images.
  Preprocessor(const config::Preprocess& settings, const Shape& stored);

  const Shape& shape() const { return shape_; }  // the shape of the result

  // The random choices of one sample; see augmentation.h.
  Augmentation Draw(uint64_t seed, int64_t epoch, int64_t sample) const {
    return DrawAugmentation(settings_, stored_, seed, epoch, sample);
  }
  Augmentation Centre() const { return CentreCrop(settings_, stored_); }

  // Reads `planes` ([channel][row][column], 0 … 255) and writes shape().elements() floats to
  // `image` ([row][column][channel]). With mean or stddev, and without standardize, pixels become
  // (x - mean) / stddev in units of pixel values.
  void Apply(std::span<const uint8_t> planes, const Augmentation& drawn, float* image) const;

 private:
  config::Preprocess settings_;
  Shape stored_, shape_;
};

// Loads samples of a data set that stores planes.
std::unique_ptr<SampleLoader> MakePlanesLoader(const Dataset& dataset,
                                               const config::Preprocess& settings);

}  // namespace muster
