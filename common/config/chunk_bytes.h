// How large a chunk of the arena is, by cluster.chunk_bytes or its default.
#pragma once

#include <vector>

#include "common/plan/chunks.h"
#include "proto/config_fwd.h"

namespace muster {

// Throws Error(kUsage) if there would be more chunks than a message can name.
std::vector<Chunk> CutChunks(const VariableLayout& layout, const config::Cluster& cluster);

}  // namespace muster
