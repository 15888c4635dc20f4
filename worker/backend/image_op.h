// Makes batches on a device from images stored in its memory. The batches equal those that the
// Preprocessor makes on the host (worker/data/preprocess.h), with the same random numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/graph/shape.h"

namespace muster {

// The settings of config.Preprocess and the shapes of the images.
struct ImageRecipe {
  Shape stored, crop;
  // Whether to use the choices of DrawAugmentation (in training) or CentreCrop.
  bool augment = false;
  uint64_t seed = 0;
  int64_t padding = 0;
  bool reflect = false;  // mirror the image in the padding, which is black otherwise
  bool flip = false, alternate_flip = false;
  float brightness = 0, contrast_low = 1, contrast_high = 1;
  bool standardize = false;
  // One number per channel, or none. With any, pixels become (x - mean) / stddev instead of
  // x / 255.
  std::vector<double> mean, stddev;
};

// All addresses are in device memory.
struct ImageArgs {
  const uint8_t* images = nullptr;      // of all samples: [sample][channel][row][column]
  const int32_t* labels = nullptr;      // of all samples
  const int64_t* sample_ids = nullptr;  // of the batch
  int64_t count = 0;                    // the number of samples in the batch
  int64_t epoch = 0;
  void* batch = nullptr;  // output: [count, crop], of Backend::activation_type()
  int32_t* batch_labels = nullptr;
  void* scratch = nullptr;  // scratch_bytes(count)
};

class ImageOp {
 public:
  virtual ~ImageOp() = default;
  virtual size_t scratch_bytes(int64_t count) const = 0;
  // Queues its work on Queue::kInput.
  virtual void Run(const ImageArgs& args) = 0;
};

}  // namespace muster
