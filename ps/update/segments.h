// Which floats of the arena are updated in which way: what the kinds of variables and their own
// settings come down to for the pass over memory.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/graph/variable_layout.h"
#include "proto/config_fwd.h"

namespace muster {

// Floats [begin, end) of the arena, of one or several variables that are treated alike. Padding
// between variables goes with the one before it; its weights, gradients and state are zeros.
struct Segment {
  enum class Kind {
    kTrained,
    kFrozen,     // learning_rate_multiplier 0: stays as it is, without decay
    kStatistic,  // follows the batch's statistics, which come in the gradient's place
  };
  size_t begin, end;
  Kind kind = Kind::kTrained;
  float weight_decay = 0;
  float rate_multiplier = 1;
  float statistic_momentum = 0;  // kStatistic

  friend bool operator==(const Segment&, const Segment&) = default;
};

// Cuts all of the arena, [0, arena_floats), in ascending order. A variable's own weight_decay goes
// before optimizer.weight_decay, which leaves out biases and the scale and shift of normalisations
// if decay_norm_and_bias is false.
std::vector<Segment> CutSegments(std::span<const Variable> variables, size_t arena_floats,
                                 const config::Optimizer& optimizer);

// The segment that holds float `at`.
std::span<const Segment>::iterator SegmentAt(std::span<const Segment> segments, size_t at);

}  // namespace muster
