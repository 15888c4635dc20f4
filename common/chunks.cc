#include "common/chunks.h"

#include <algorithm>
#include <bit>

#include "common/error.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

// A Welcome names the end of each, in one packet of the local link.
constexpr size_t kMostChunks = 65536;

constexpr size_t kAlignFloats = 16;

// The floats of the arena that belong to one layer.
struct Block {
  int layer;
  size_t begin, end;
};

std::vector<Block> LayerBlocks(const Graph& graph) {
  std::vector<Block> blocks;
  for (const Variable& variable : graph.variables()) {
    if (blocks.empty() || blocks.back().layer != variable.layer) {
      if (!blocks.empty()) blocks.back().end = variable.offset;
      blocks.push_back({variable.layer, variable.offset, 0});
    }
  }
  blocks.back().end = graph.arena_floats();
  return blocks;
}

// With 16 bits, half as much: the rounded chunks under way then stay in the cache (a twentieth of a
// round of 100 MB over TCP).
int64_t TargetBytes(const Graph& graph, const config::Cluster& cluster) {
  if (cluster.chunk_bytes() > 0) return cluster.chunk_bytes();
  const auto arena_bytes = static_cast<int64_t>(graph.arena_floats() * sizeof(float));
  const int64_t most = cluster.wire_dtype() == config::Cluster::FP32 ? 4 << 20 : 2 << 20;
  return std::clamp<int64_t>(arena_bytes / 24, 1 << 20, most);
}

}  // namespace

std::vector<Chunk> CutChunks(const Graph& graph, const config::Cluster& cluster) {
  const size_t target = std::max<size_t>(
      kAlignFloats, static_cast<size_t>(TargetBytes(graph, cluster)) / sizeof(float));
  std::vector<Chunk> chunks;
  Chunk open;
  const auto close = [&] {
    if (open.floats() > 0) chunks.push_back(open);
    open.begin = open.end;
  };
  for (const Block& block : LayerBlocks(graph)) {
    const size_t floats = block.end - block.begin;
    if (floats > target) {
      close();
      const size_t pieces = (floats + target - 1) / target;
      size_t piece = (floats + pieces - 1) / pieces;
      piece = (piece + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
      for (size_t at = block.begin; at < block.end; at += piece) {
        chunks.push_back({at, std::min(block.end, at + piece), block.layer, block.layer});
      }
      open.begin = open.end = block.end;
      continue;
    }
    const size_t most = chunks.empty() ? target / 4 : target;
    if (open.floats() + floats > most) close();
    if (open.floats() == 0) open.first_layer = block.layer;
    open.end = block.end;
    open.last_layer = block.layer;
  }
  close();
  MUSTER_CHECK(chunks.front().begin == 0 && chunks.back().end == graph.arena_floats());
  if (chunks.size() > kMostChunks) {
    throw Error(
        ExitCode::kUsage,
        "cluster.chunk_bytes: {} cuts the model's {} MB into {} chunks: expected at most {}, "
        "with at least {} bytes each",
        target * sizeof(float), graph.arena_floats() * sizeof(float) / 1000000, chunks.size(),
        kMostChunks, std::bit_ceil(graph.arena_floats() * sizeof(float) / kMostChunks));
  }
  return chunks;
}

}  // namespace muster
