// Which work is known to be done before which: vector clocks of the streams.
//
// All that a stream does is numbered: a segment is one piece of work, or the part of one block of a
// kernel between two barriers. A clock says, for each stream, up to which segment everything is
// known to be done: it passes from stream to stream with events, and to and from the host.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace muster::software_gpu {

// Streams that may exist at one time. A stream takes the place of one that was destroyed, and goes
// on with its numbers.
inline constexpr int kMaxStreams = 32;

using Clock = std::array<uint64_t, kMaxStreams>;

inline void MergeInto(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace muster::software_gpu
