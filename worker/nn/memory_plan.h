// Lets buffers share memory if they are never needed at the same time.
#pragma once

#include <cstddef>
#include <vector>

namespace muster {

struct Lifetime {
  size_t bytes = 0;
  int first = 0, last = 0;  // in steps, both inclusive
  size_t offset = 0;        // chosen by PlaceBuffers; a multiple of 64
};

// Chooses offsets so that buffers with overlapping lifetimes do not overlap. Places the largest
// buffers first, each as low as possible. Returns the total size in bytes.
size_t PlaceBuffers(std::vector<Lifetime>& buffers);

}  // namespace muster
