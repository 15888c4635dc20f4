#include "common/config/chunk_bytes.h"

#include <algorithm>

#include "proto/config.pb.h"

namespace muster {
namespace {

// With 16 bits, half as much: the rounded chunks under way then stay in the cache (a twentieth of a
// round of 100 MB over TCP).
int64_t ChunkBytes(const VariableLayout& layout, const config::Cluster& cluster) {
  if (cluster.chunk_bytes() > 0) return cluster.chunk_bytes();
  const auto arena_bytes = static_cast<int64_t>(layout.arena_floats() * sizeof(float));
  const int64_t most = cluster.wire_dtype() == config::Cluster::FP32 ? 4 << 20 : 2 << 20;
  return std::clamp<int64_t>(arena_bytes / 24, 1 << 20, most);
}

}  // namespace

std::vector<Chunk> CutChunks(const VariableLayout& layout, const config::Cluster& cluster) {
  return CutChunks(layout, static_cast<size_t>(ChunkBytes(layout, cluster)));
}

}  // namespace muster
