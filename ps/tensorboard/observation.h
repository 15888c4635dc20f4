// What was seen of the gradient and of the new weights in one step.
#pragma once

#include <string>
#include <vector>

#include "ps/tensorboard/value_histogram.h"

namespace muster {

// How closely a step is looked at.
enum class Observe { kNothing, kNorms, kHistograms };

struct Observation {
  // Euclidean, over all trained variables; the gradient's before clip_norm.
  double gradient_norm = 0, weight_norm = 0;

  struct OfVariable {
    std::string name;
    ValueHistogram gradient, weights;
  };
  std::vector<OfVariable> variables;  // with kHistograms
};

}  // namespace muster
