// An image of an evaluation with its prediction, for TensorBoard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster {

// The image as stored, before preprocessing.
struct SampleImage {
  int64_t index = 0;  // position in the set
  uint32_t height = 0, width = 0, channels = 0;
  std::string pixels;  // height x width x channels bytes, channels fastest
  uint32_t label = 0, predicted = 0;
};

// The class names, by label. A label without a name is shown as a number.
using ClassNames = google::protobuf::RepeatedPtrField<std::string>;

// Adds the image with a frame: green if the prediction is right, red if it is wrong. Ignores
// inconsistent images and those without one or three channels. The tag contains the label's name:
// "test_images/3_ship". `set`: "test" or "validation".
void AddImage(tensorboard::Summary& summary, const std::string& set, const SampleImage& image,
              const ClassNames& names);

std::string PredictionTable(const std::vector<SampleImage>& images, const ClassNames& names);

}  // namespace muster
