#include "common/plan/chunks.h"

#include <algorithm>
#include <bit>

#include "common/base/error.h"

namespace muster {
namespace {

// The limit exists because Welcome contains the end of each chunk and must fit into one packet of
// the local link.
constexpr size_t kMostChunks = 65536;

constexpr size_t kAlignFloats = VariableLayout::kAlignFloats;

// The range of floats in the buffer that belongs to one layer.
struct Block {
  int layer;
  size_t begin, end;
};

std::vector<Block> LayerBlocks(const VariableLayout& layout) {
  std::vector<Block> blocks;
  for (const Variable& variable : layout.variables()) {
    if (blocks.empty() || blocks.back().layer != variable.layer) {
      if (!blocks.empty()) blocks.back().end = variable.offset;
      blocks.push_back({variable.layer, variable.offset, 0});
    }
  }
  blocks.back().end = layout.arena_floats();
  return blocks;
}

}  // namespace

std::vector<Chunk> CutChunks(const VariableLayout& layout, size_t target_bytes) {
  const size_t target = std::max(kAlignFloats, target_bytes / sizeof(float));
  std::vector<Chunk> chunks;
  Chunk open;
  const auto close = [&] {
    if (open.floats() > 0) chunks.push_back(open);
    open.begin = open.end;
  };
  for (const Block& block : LayerBlocks(layout)) {
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
  MUSTER_CHECK(chunks.front().begin == 0 && chunks.back().end == layout.arena_floats());
  if (chunks.size() > kMostChunks) {
    throw Error(
        ExitCode::kUsage,
        "cluster.chunk_bytes: {} cuts the model's {} MB into {} chunks: expected at most {}, "
        "with at least {} bytes each",
        target * sizeof(float), layout.arena_floats() * sizeof(float) / 1000000, chunks.size(),
        kMostChunks, std::bit_ceil(layout.arena_floats() * sizeof(float) / kMostChunks));
  }
  return chunks;
}

}  // namespace muster
