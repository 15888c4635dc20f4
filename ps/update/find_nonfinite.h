// Locates a non-finite value for an error message, after an update has reported one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/plan/chunks.h"
#include "ps/update/partial_gradients.h"
#include "ps/update/variables.h"

namespace muster {

// "the gradient of conv1/weights[12] is nan"
struct Nonfinite {
  std::string what;
  std::optional<uint32_t> rank;  // none: all parts were finite, but the sum or the weight is not
};

// The chunk of an update that found a non-finite value.
struct Suspect {
  const Variables& variables;
  const PartialGradients& gradients;
  size_t chunk;  // its index
  Chunk range;   // its position
  int64_t step;
  // The sums, if this is the first phase of a two-phase step, in which nothing has been updated.
  // Otherwise empty.
  std::span<const float> averaged;
};

Nonfinite FindNonfinite(const Suspect& suspect);

}  // namespace muster
