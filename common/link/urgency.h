// Which of the tensors that wait for the same peer leaves first.
#pragma once

#include <compare>
#include <cstdint>

namespace muster {

// The lesser one is the more urgent.
struct Urgency {
  int64_t step = 0;      // the gradient's, or the weights' version: older ones first
  bool average = false;  // the average comes after all weights of its version
  uint32_t chunk = 0;    // lower layers first: the next forward pass waits for them

  // clang-tidy 14 takes the 0 of a defaulted comparison for a pointer.
  friend auto operator<=>(const Urgency&,
                          const Urgency&) = default;  // NOLINT(modernize-use-nullptr)
};

}  // namespace muster
