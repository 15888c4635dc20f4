// Which buffers may lie in the same memory: those that are never needed at the same time.
#pragma once

#include <cstddef>
#include <vector>

namespace muster {

struct Lifetime {
  size_t bytes = 0;
  int first = 0, last = 0;  // in steps, both included
  size_t offset = 0;        // chosen by PlaceBuffers: a multiple of 64
};

// Chooses offsets so that buffers whose lifetimes overlap do not, largest first, each as low as
// possible. Returns the bytes that all of them take together.
size_t PlaceBuffers(std::vector<Lifetime>& buffers);

}  // namespace muster
