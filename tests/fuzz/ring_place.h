// Where an attacker with write access to a ring would write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "common/transport/local/message_ring.h"

namespace muster::fuzz {

// Small numbers select the counters and the start of the ring, so most writes go there.
inline size_t PlaceInRing(uint16_t number) {
  constexpr size_t kWords[] = {offsetof(RingMemory, written), offsetof(RingMemory, wants_room),
                               offsetof(RingMemory, taken), offsetof(RingMemory, doorbell),
                               offsetof(RingMemory, ring)};
  return number < 256 ? kWords[number % std::size(kWords)] : number;
}

}  // namespace muster::fuzz
