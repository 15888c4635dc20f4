// The input of a pass through the network, except the weights, and the layer hooks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/graph/pixel_scale.h"

namespace muster {

// Identifies a batch that may have been prepared ahead: equal keys mean equal samples, order, epoch
// and labels. The default key means that the batch was not prepared.
struct BatchKey {
  int64_t step = -1, index = -1;
  bool operator==(const BatchKey&) const = default;
};

// `count` samples on the host. images, or pixels and their scale if the device has its own memory:
// [count, height, width, channels], 64-byte aligned. With StoredImages, none of these and no labels
// are read. The pointers must stay valid until the work queued on Queue::kCopyIn is done and, if
// the device computes in host memory, until the Backward that follows a training Forward. A sample
// with label -1 has weight zero: it adds no loss and no gradient, and is never correct.
struct TowerInput {
  int64_t count = 0;
  const float* images = nullptr;
  const uint8_t* pixels = nullptr;
  const PixelScale* scale = nullptr;
  const int32_t* labels = nullptr;
  // Keys of dropout's random numbers: each sample's index in the dataset, and the epoch.
  const int64_t* sample_ids = nullptr;
  int64_t epoch = 0;
  BatchKey key = {};  // see Tower::Stage
  // If below 1, each sample was mixed with the preceding one (LossArgs). Only in training.
  float share = 1;
  // If not null, receives the class of the largest logit of each sample (see Tower::Forward).
  int32_t* predictions = nullptr;
  // If not null, receives the input of the loss, [count, outputs]. Only in inference with a backend
  // whose activations are floats. Available with the predictions, until the next Forward begins.
  float* logits = nullptr;
};

// Called with a layer's index; see Tower::Forward and Tower::Backward.
using LayerHook = std::function<void(int layer)>;

// By layer, whether the hooks are called for it if it has variables. Empty: for all layers.
using HookLayers = std::vector<bool>;

}  // namespace muster
