// Which cards to take of those that could be taken. Pure functions of what was seen.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launch/gpu/gpu.h"

namespace muster {

// Why this card should not be taken: another's process computes on it, its memory is used by
// somebody who cannot be seen, it is too hot, it cannot be used. "" where nothing speaks against
// it. `free_share`: of its memory, what must be free.
std::string WhyBusy(const Gpu& gpu, double free_share);

// `count` of the cards `candidates` (indices of snapshot.gpus), in the order of their ranks: quiet
// cards before those that draw a desktop or were busy in the last moment, then cards of one model,
// then those that are closest to one another, then those with the most free memory, then in NVML's
// order. There are at least `count` candidates. snapshot.links may be missing where count is 1.
std::vector<size_t> ChooseCards(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                                size_t count);

// Why these, in a few words: "idle, most free memory"; "idle, joined by NVLink".
std::string ChoiceReason(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                         const std::vector<size_t>& chosen);

}  // namespace muster
