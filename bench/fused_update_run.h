// Runs the server's fused update without a server. The buffers have the same layout as those of the
// server and its local workers; a team of threads updates them chunk by chunk.
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
  size_t floats = 0;  // size of the model; a multiple of 16
  int parts = 2;
  config::Optimizer optimizer;
  bool keep_previous = false;  // keep the previous state (VariablesOptions)
  bool stream = false;         // write new values past the cache
};

class FusedUpdateRun {
 public:
  FusedUpdateRun(Team& team, const FusedUpdateOptions& options);

  // Runs a few updates from the initial state. Compares the weights with the optimizer's formula in
  // double precision, and those that must be equal with each other, bit by bit. Returns an error or
  // "".
  std::string Verify(const UpdateKernelTable& kernels);

  // Returns the duration of one pass in seconds. This is the mean of `repeats` passes, which each
  // thread runs back to back on its chunks.
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
  std::array<std::span<float>, 2> state_[2];  // by weight buffer
  std::vector<std::span<float>> gradient_buffers_;
  int64_t updates_ = 0;
};

}  // namespace muster::bench
