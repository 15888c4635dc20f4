// Cuts the parameter buffer into chunks that are sent and updated separately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/graph/variable_layout.h"

namespace muster {

// The floats [begin, end) of the parameter buffer, and the layers whose variables they contain.
// begin and end are multiples of 16 floats, so that every chunk is 64-byte aligned.
struct Chunk {
  size_t begin = 0, end = 0;
  int first_layer = 0, last_layer = 0;
  size_t floats() const { return end - begin; }
};

// Cuts the buffer in forward order into chunks of about `target_bytes`. Small layers share a chunk
// until it is full; a larger layer is cut into nearly equal pieces. The first chunk is closed at a
// quarter of the target, because backward completes it last and the next forward pass needs it
// first. Throws Error(kUsage) if there would be more chunks than a message can number.
std::vector<Chunk> CutChunks(const VariableLayout& layout, size_t target_bytes);

}  // namespace muster
