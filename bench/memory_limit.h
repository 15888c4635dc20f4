// What the memory of this machine allows for the traffic of one update: the limit that the other
// benchmarks are compared with, measured in the same run.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "bench/team.h"

namespace muster::bench {

struct PassShape {
  size_t floats = 0;
  int gradients = 2;  // arrays that are read, added up
  int states = 1;     // arrays that are read and written (momentum, Adam's moments)
};

// Bytes that such a pass has to move.
double UpdateBytes(const PassShape& shape);

// The fastest plain loop found over arrays of this shape: reads gradients, weights and states,
// writes states and (past the cache, if that is faster) the new weights. It has arrays of its own,
// which begin at different places of a page.
class MemoryLimit {
 public:
  MemoryLimit(Team& team, const PassShape& shape);

  // Seconds of one pass: of `repeats` passes, one after another by each thread on its part.
  double Seconds(int repeats = 1);

 private:
  double Seconds(int repeats, bool stream);

  Team& team_;
  const PassShape shape_;
  std::vector<std::unique_ptr<float, void (*)(void*)>> owners_;
  std::vector<float*> streams_;  // gradients, weights, states, new weights
  bool stream_ = false;          // what was faster
};

// The median of several passes by `threads` threads.
double MemoryLimitSeconds(const PassShape& shape, int threads, int passes = 7);

}  // namespace muster::bench
