// What the memory of this machine allows for the traffic of one update: the limit that the other
// benchmarks are compared with, measured in the same run.
#pragma once

#include <cstddef>

namespace muster::bench {

struct PassShape {
  size_t floats = 0;
  int gradients = 2;  // arrays that are read, added up
  int states = 1;     // arrays that are read and written (momentum, Adam's moments)
  int threads = 1;
};

// Seconds of the fastest plain loop found over arrays of this shape: reads gradients, weights and
// states, writes states and (past the cache, if that is faster) the new weights. The median of
// several passes, after one that touches the memory.
double MemoryLimitSeconds(const PassShape& shape, int passes = 7);

// Bytes that such a pass has to move.
double PassBytes(const PassShape& shape);

}  // namespace muster::bench
