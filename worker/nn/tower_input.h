// What a pass through the network is given, beside weights: samples, and who is told of layers.
#pragma once

#include <cstdint>
#include <functional>

namespace muster {

// `count` samples at the host. images: [count, height, width, channels], 64-byte aligned. What the
// pointers point to must stay as it is until what is queued on Queue::kCopyIn is done, and, where
// the device computes in the host's memory, until the Backward that follows a training Forward. A
// sample with label -1 has weight zero: no loss, no gradient, not correct.
struct TowerInput {
  int64_t count = 0;
  const float* images = nullptr;
  const int32_t* labels = nullptr;
  // Dropout is keyed by these: the index of each sample in the dataset, and the epoch.
  const int64_t* sample_ids = nullptr;
  int64_t epoch = 0;
  // If given, the class of the largest logit of each sample comes here; when, see Tower::Forward.
  int32_t* predictions = nullptr;
  // If given, what the loss reads comes here: [count, classes]. In inference alone, with a backend
  // whose activations are floats; there when predictions are, and before the next Forward begins.
  float* logits = nullptr;
};

// Called with a layer's index; see Tower::Forward and Tower::Backward.
using LayerHook = std::function<void(int layer)>;

}  // namespace muster
