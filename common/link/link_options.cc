#include <algorithm>

#include "common/chunks.h"
#include "common/link/link.h"

namespace muster {

LinkOptions LinkOptionsFor(const config::Config& config, const Graph& graph) {
  size_t largest = 0;
  const std::vector<Chunk> chunks = CutChunks(graph, config.cluster().chunk_bytes());
  for (const Chunk& chunk : chunks) largest = std::max(largest, chunk.floats() * sizeof(float));
  LinkOptions options;
  options.max_message_bytes = largest + (4 << 20);
  // Both planes' chunks can be on their way to a worker, and every part of one gradient from it; a
  // worker pushes at most two subtrees per level of the slice tree.
  options.max_queued_messages = static_cast<int>(chunks.size()) * 64 + 1000;
  options.silence_s = config.deadlines().silence_s();
  return options;
}

}  // namespace muster
