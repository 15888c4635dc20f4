// Preprocessing settings and image shapes for comparing two implementations.
#pragma once

#include <vector>

#include "common/graph/shape.h"
#include "proto/config.pb.h"

namespace muster::testing {

// CIFAR-10's shape, an uneven one, one with a single channel, a single pixel.
inline const Shape kPreprocessedShapes[] = {{32, 32, 3}, {7, 11, 3}, {9, 5, 1}, {1, 1, 2}};

// Brightness and contrast as in the tutorial of the demo's network.
inline void SetColours(config::Preprocess& settings) {
  settings.set_brightness(63);
  settings.set_contrast_min(0.2f);
  settings.set_contrast_max(1.8f);
}

// All settings, with a crop of this many rows and columns.
inline config::Preprocess AllPreprocessing(uint32_t crop) {
  config::Preprocess settings;
  settings.set_crop_height(crop);
  settings.set_crop_width(crop);
  settings.set_flip(true);
  SetColours(settings);
  settings.set_standardize(true);
  return settings;
}

// All combinations of settings for images of this shape.
inline std::vector<config::Preprocess> PreprocessVariants(const Shape& stored) {
  std::vector<config::Preprocess> variants;
  for (int variant = 0; variant < 64; ++variant) {
    config::Preprocess& settings = variants.emplace_back();
    if (variant & 1) {
      settings.set_crop_height(static_cast<uint32_t>((stored.height + 1) / 2));
      settings.set_crop_width(static_cast<uint32_t>((stored.width + 3) / 4));
    }
    settings.set_crop_padding(variant & 2 ? 4 : 0);
    settings.set_flip(variant & 4);
    settings.set_alternate_flip(variant & 1);
    settings.set_standardize(variant & 8);
    if (variant & 16) SetColours(settings);
    if (variant & 32) settings.set_padding(config::Preprocess::REFLECT);
  }
  return variants;
}

}  // namespace muster::testing
