// Stores past the cache.
#pragma once

#include <cstddef>

namespace muster {

// to ← from, for `count` floats that nobody reads before much else was written: their lines are
// not read from memory first, and displace nothing in the cache. Followed by FenceStreams before
// anybody is told that they are there. 64-byte aligned places are fastest; any will do.
void StreamOut(const float* from, float* to, size_t count);
void FenceStreams();

}  // namespace muster
