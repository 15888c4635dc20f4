// Chooses the best of the available GPUs. Pure functions of a snapshot.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"

namespace muster {

// Chooses `count` of `candidates` (indices of snapshot.gpus), in rank order. Prefers quiet GPUs to
// those that draw a desktop or were busy a moment ago, then GPUs of the same model, then those
// closest to one another, then those with the most free memory, then NVML's order. There must be at
// least `count` candidates. snapshot.links may be missing if count is 1.
std::vector<size_t> ChooseGpus(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                               size_t count);

// The reason for the choice, in a few words: "idle, the most free memory"; "idle, joined by
// NVLink".
std::string ChoiceReason(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                         const std::vector<size_t>& chosen);

}  // namespace muster
