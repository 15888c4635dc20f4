// How a device makes batches of images that lie in its memory as they are stored: what the
// Preprocessor does at the host (worker/data/preprocess.h), with the same random numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/graph/shape.h"

namespace muster {

// config.Preprocess, and what it is applied to.
struct ImageRecipe {
  Shape stored, crop;
  // Training: what DrawAugmentation draws. Otherwise CentreCrop.
  bool augment = false;
  uint64_t seed = 0;
  int64_t padding = 0;
  bool flip = false;
  float brightness = 0, contrast_low = 1, contrast_high = 1;
  bool standardize = false;
};

// All in the device's memory.
struct ImageArgs {
  const uint8_t* images = nullptr;      // of all samples: [sample][channel][row][column]
  const int32_t* labels = nullptr;      // of all samples
  const int64_t* sample_ids = nullptr;  // of the batch
  int64_t count = 0;                    // samples of the batch
  int64_t epoch = 0;
  void* batch = nullptr;  // written: [count, crop], of Backend::activation_type()
  int32_t* batch_labels = nullptr;
  void* scratch = nullptr;  // scratch_bytes(count)
};

class ImageOp {
 public:
  virtual ~ImageOp() = default;
  virtual size_t scratch_bytes(int64_t count) const = 0;
  // Queued on Queue::kInput.
  virtual void Run(const ImageArgs& args) = 0;
};

}  // namespace muster
