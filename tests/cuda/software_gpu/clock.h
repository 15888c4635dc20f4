// Vector clocks of the streams: which work is known to be done before which.
//
// A stream numbers its segments. A segment is a piece of work, or the part of a kernel's block
// between two barriers. A clock has, for each stream, the segment up to which all is known to be
// done. Events pass it between streams, and waits pass it to the host.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace muster::software_gpu {

// The maximum number of streams at the same time. A new stream may take the slot of a destroyed
// one, and continues its segment numbers.
inline constexpr int kMaxStreams = 32;

using Clock = std::array<uint64_t, kMaxStreams>;

inline void MergeInto(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace muster::software_gpu
