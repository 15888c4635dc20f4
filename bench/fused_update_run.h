// The server's pass over memory, without a server: arenas laid out as the server and its local
// workers lay them out, updated chunk by chunk by a team of threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/team.h"
#include "common/base/memory.h"
#include "common/base/shared_memory.h"
#include "common/plan/chunks.h"
#include "proto/config.pb.h"
#include "ps/update/optimizer.h"
#include "ps/update/segments.h"
#include "ps/update/tree_sum.h"

namespace muster::bench {

struct FusedUpdateOptions {
  size_t floats = 0;  // of the arena; a multiple of 16
  int parts = 2;
  config::Optimizer optimizer;
  bool keep_previous = false;  // the state of before, too (VariablesOptions)
  bool stream = false;         // new values past the cache
};

class FusedUpdateRun {
 public:
  FusedUpdateRun(Team& team, const FusedUpdateOptions& options);

  // From the beginning: a few updates, compared with the optimizer's formula in double precision,
  // and with one another across the arena bit by bit. What is wrong, or an empty string.
  std::string Verify(const UpdateKernelTable& kernels);

  // Seconds of one pass: of `repeats` passes, one after another by each thread on its chunks.
  double Seconds(const UpdateKernelTable& kernels, int repeats = 1);

 private:
  void Reset();
  void Update(const UpdateRule& rule, int64_t number, const Chunk& chunk);

  Team& team_;
  const FusedUpdateOptions options_;
  const TreeSum tree_;
  const std::vector<Segment> segments_;
  std::vector<Chunk> chunks_;
  SharedMemory weight_memory_;
  std::vector<SharedMemory> gradient_memory_;
  std::vector<Arena> state_memory_;
  std::span<float> weight_buffers_[2];
  std::array<std::span<float>, 2> state_[2];  // of each weight buffer
  std::vector<std::span<float>> gradient_buffers_;
  int64_t updates_ = 0;
};

}  // namespace muster::bench
