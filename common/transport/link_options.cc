#include "common/transport/link_options.h"

#include <algorithm>

#include "common/config/job_size.h"
#include "common/plan/chunks.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

// Limits the memory that a peer can occupy in the server, besides the one accepted gradient, to
//   64 MiB + 16 messages
// even if every message has the maximum size. Further messages wait at the sender.
int ReceiveWindow(size_t max_message_bytes) {
  constexpr size_t kFewest = 16;
  return static_cast<int>((64 << 20) / max_message_bytes + kFewest);
}

// Over the local link, a worker gets orders, heartbeats, and a notice for each chunk of two
// versions of the weights and of their averages. A worker with more waiting bytes has not read for
// a long time; usually its silence has been detected before.
size_t MostWaitingBytes(size_t chunks) {
  constexpr size_t kNotices = 4, kNoticeBytes = 128, kOtherBytes = 16 << 20;
  return kOtherBytes + kNotices * chunks * kNoticeBytes;
}

}  // namespace

LinkOptions LinkOptionsFor(const config::Config& config, const VariableLayout& layout) {
  constexpr size_t kMostHeader = 4 << 20, kMostChunk = 64 << 20;  // cluster.chunk_bytes
  // The server of a program's job listens before it knows the variables.
  size_t largest = layout.variables().empty() ? kMostChunk : 0, count = 1024;
  if (!layout.variables().empty()) {
    const std::vector<Chunk> chunks = CutChunks(layout, config.cluster());
    for (const Chunk& chunk : chunks) largest = std::max(largest, chunk.floats() * sizeof(float));
    count = chunks.size();
  }
  LinkOptions options;
  options.max_message_bytes = std::max(largest, kMostHeader);
  options.max_server_message_bytes =
      std::max(largest, std::min(layout.arena_floats() * sizeof(float), 2 * kMostChunk)) +
      kMostHeader;
  // All parts of one gradient may be in flight, with at most two subtrees per level of the slice
  // tree.
  options.max_queued_messages = static_cast<int>(count) * 64 + 1000;
  options.max_waiting_bytes = MostWaitingBytes(count);
  options.max_received_messages = ReceiveWindow(options.max_message_bytes);
  options.silence_s = config.deadlines().silence_s();
  options.share_memory = config.cluster().wire_dtype() == config::Cluster::FP32;
  options.locks_pages = config.worker().backend() == config::Worker::CUDA;
  options.io_threads = static_cast<int>(std::max(1u, config.server().io_threads()));
  return options;
}

}  // namespace muster
