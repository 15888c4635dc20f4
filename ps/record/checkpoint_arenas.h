// Converts between the variables and the tensors of a checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_reader.h"
#include "ps/update/variables.h"

namespace muster {

// "weights", "optimizer_state_0", …, "average".
std::vector<std::string> CheckpointArenaNames(const Variables& variables);
// W(version) and its current optimizer state and average, in the order of CheckpointArenaNames.
std::vector<std::span<float>> CheckpointArenas(Variables& variables, int64_t version);

// Reads the tensors of one buffer. Throws Error(kData).
void ReadArena(const CheckpointReader& reader, const std::string& arena,
               const VariableLayout& layout, std::span<float> to);
// Reads all buffers and the number of updates. Throws Error(kData), or Error(kUsage) if the
// checkpoint belongs to a different network.
void RestoreVariables(const CheckpointReader& reader, Variables& variables);

}  // namespace muster
