// Divides the parameter buffer into segments that are updated in the same way.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/graph/variable_layout.h"
#include "proto/config_fwd.h"

namespace muster {

// Floats [begin, end) of the buffer, from one or several variables that are updated alike. Includes
// the padding after each variable, whose weights, gradients and state are zero.
struct Segment {
  enum class Kind {
    kTrained,
    kFrozen,     // learning_rate_multiplier is 0: unchanged, without decay
    kStatistic,  // follows the batch statistics, which arrive in place of a gradient
  };
  size_t begin, end;
  Kind kind = Kind::kTrained;
  float weight_decay = 0;
  float rate_multiplier = 1;
  float statistic_momentum = 0;  // kStatistic

  friend bool operator==(const Segment&, const Segment&) = default;
};

// Cuts the whole buffer, [0, arena_floats), in ascending order. A variable's own weight_decay
// overrides optimizer.weight_decay, which excludes biases and the scale and shift of normalizations
// if decay_norm_and_bias is false.
std::vector<Segment> CutSegments(std::span<const Variable> variables, size_t arena_floats,
                                 const config::Optimizer& optimizer);

// The segment that contains float `at`.
std::span<const Segment>::iterator SegmentAt(std::span<const Segment> segments, size_t at);

}  // namespace muster
