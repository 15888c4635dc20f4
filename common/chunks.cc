#include "common/chunks.h"

#include <algorithm>

#include "common/error.h"

namespace muster {
namespace {

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

}  // namespace

std::vector<Chunk> CutChunks(const Graph& graph, int64_t target_bytes) {
  if (target_bytes == 0) {
    const auto arena_bytes = static_cast<int64_t>(graph.arena_floats() * sizeof(float));
    target_bytes = std::clamp<int64_t>(arena_bytes / 24, 1 << 20, 4 << 20);
  }
  const size_t target =
      std::max<size_t>(kAlignFloats, static_cast<size_t>(target_bytes) / sizeof(float));
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
  return chunks;
}

}  // namespace muster
