// What a pass through the network is given, beside weights: samples, and who is told of layers.
#pragma once

#include <cstdint>
#include <functional>

namespace muster {

// Which samples these are, for whoever prepares them ahead: equal for equal samples, whose order,
// epoch and labels are equal, too. Default: none that was prepared.
struct BatchKey {
  int64_t step = -1, index = -1;
  bool operator==(const BatchKey&) const = default;
};

// `count` samples at the host. images: [count, height, width, channels], 64-byte aligned; not read,
// nor are labels, by a tower that was given StoredImages to make them of. What the
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
  BatchKey key = {};  // see Tower::Stage
  // Below 1: each sample was mixed with the one before it (LossArgs). In training alone.
  float share = 1;
  // If given, the class of the largest logit of each sample comes here; when, see Tower::Forward.
  int32_t* predictions = nullptr;
  // If given, what the loss reads comes here: [count, outputs]. In inference alone, with a backend
  // whose activations are floats; there when predictions are, and before the next Forward begins.
  float* logits = nullptr;
};

// Called with a layer's index; see Tower::Forward and Tower::Backward.
using LayerHook = std::function<void(int layer)>;

}  // namespace muster
