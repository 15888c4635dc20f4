// Where a value is that is not finite, for people: looked for after an update has said that there
// is one.
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
  std::optional<uint32_t> rank;  // none: each part was finite, the sum or the weight is not
};

// What an update wrote, or was about to.
struct Suspect {
  const Variables& variables;
  const PartialGradients& gradients;
  size_t chunk;  // its number
  Chunk range;   // … and where it lies
  int64_t step;
  // In the first phase of a two-phase step, the sums: nothing has been updated. Else empty.
  std::span<const float> averaged;
};

Nonfinite FindNonfinite(const Suspect& suspect);

}  // namespace muster
