// Measures the limit that memory bandwidth sets for the traffic of one update. It is measured in
// the same run as the benchmark that is compared with it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "bench/team.h"

namespace muster::bench {

struct PassShape {
  size_t floats = 0;
  int gradients = 2;  // arrays that are read and summed
  int states = 1;     // arrays that are read and written (momentum, Adam's moments)
};

// The number of bytes that a pass of this shape must move.
double UpdateBytes(const PassShape& shape);

// Times the faster of two plain loops over arrays of this shape. The loops read gradients, weights
// and states, and write states and new weights; one of them writes past the cache. The arrays start
// at different page offsets.
class MemoryLimit {
 public:
  MemoryLimit(Team& team, const PassShape& shape);

  // Returns the duration of one pass in seconds. This is the mean of `repeats` passes, which each
  // thread runs back to back on its part.
  double Seconds(int repeats = 1);

 private:
  double Seconds(int repeats, bool stream);

  Team& team_;
  const PassShape shape_;
  std::vector<std::unique_ptr<float, void (*)(void*)>> owners_;
  std::vector<float*> streams_;  // gradients, weights, states, new weights
  bool stream_ = false;          // whether streaming was faster
};

// Returns the median duration of several passes with `threads` threads, in seconds.
double MemoryLimitSeconds(const PassShape& shape, int threads, int passes = 7);

}  // namespace muster::bench
