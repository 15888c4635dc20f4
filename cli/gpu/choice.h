// Which GPUs to take of those that could be taken. Pure functions of what was seen.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"

namespace muster {

// `count` of the GPUs `candidates` (indices of snapshot.gpus), in the order of their ranks: quiet
// GPUs before those that draw a desktop or were busy in the last moment, then GPUs of one model,
// then those that are closest to one another, then those with the most free memory, then in NVML's
// order. There are at least `count` candidates. snapshot.links may be missing where count is 1.
std::vector<size_t> ChooseGpus(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                               size_t count);

// Why these, in a few words: "idle, most free memory"; "idle, joined by NVLink".
std::string ChoiceReason(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                         const std::vector<size_t>& chosen);

}  // namespace muster
