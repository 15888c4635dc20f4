// From stored pixels to the network's input: the steps of config.Preprocess.
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
  // Throws Error(kUsage) for settings that do not fit one another or the stored images.
  Preprocessor(const config::Preprocess& settings, const Shape& stored);

  const Shape& shape() const { return shape_; }  // of what comes out

  // The choices of one sample; see augmentation.h.
  Augmentation Draw(uint64_t seed, int64_t epoch, int64_t sample) const {
    return DrawAugmentation(settings_, stored_, seed, epoch, sample);
  }
  Augmentation Centre() const { return CentreCrop(settings_, stored_); }

  // With mean or stddev pixels become (x - mean) / stddev, in their own unit, unless they are
  // standardized. Reads `planes` ([channel][row][column], 0 … 255) and writes shape().elements()
  // floats to `image` ([row][column][channel]).
  void Apply(std::span<const uint8_t> planes, const Augmentation& choices, float* image) const;

 private:
  config::Preprocess settings_;
  Shape stored_, shape_;
};

// Loads samples of a data set that stores planes.
std::unique_ptr<SampleLoader> MakePlanesLoader(const Dataset& dataset,
                                               const config::Preprocess& settings);

}  // namespace muster
