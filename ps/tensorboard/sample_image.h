// An image of an evaluation with what the network takes it for, as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster {

// As it is stored, before preprocessing.
struct SampleImage {
  int64_t index = 0;  // in the set
  uint32_t height = 0, width = 0, channels = 0;
  std::string pixels;  // height x width x channels bytes, channels fastest
  uint32_t label = 0, predicted = 0;
};

// The classes' names, in the order of the labels. A label without one is shown as its number.
using ClassNames = google::protobuf::RepeatedPtrField<std::string>;

// Adds it as a picture in a frame: green if the prediction is right, red if not. Left out if its
// numbers do not fit together, or it has neither one nor three channels. Its tag has the label's
// name: "test_images/3_ship".
// `set`: "test" or "validation".
void AddImage(tensorboard::Summary& summary, const std::string& set, const SampleImage& image,
              const ClassNames& names);

// In Markdown.
std::string PredictionTable(const std::vector<SampleImage>& images, const ClassNames& names);

}  // namespace muster
