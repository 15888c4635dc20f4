// Describes what a step is missing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/graph/variable_layout.h"
#include "common/plan/chunks.h"
#include "common/plan/slices.h"

namespace muster {

// The chunks of one order's gradient that have not arrived, and the order's slices.
struct MissingPart {
  uint32_t rank = 0;
  Range slices;
  std::vector<uint32_t> chunks;
};

// "slice 4", "slices 4 to 7"
std::string SlicesText(const Range& slices);

// "slices 4 to 7 of conv1/weights, conv1/bias and 3 more variables (rank 1); slice 9 of all 12
// variables (rank 2)". Lists the first few parts and names; "" if nothing is missing.
std::string MissingText(std::span<const MissingPart> parts, const VariableLayout& layout,
                        std::span<const Chunk> chunks);

}  // namespace muster
