// The tensors of a checkpoint, from the variables and back.
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
// In the same order, of W(version) and what belongs to it now.
std::vector<std::span<float>> CheckpointArenas(Variables& variables, int64_t version);

// Reads one of them, of variables that lie so. Throws Error(kData).
void ReadArena(const CheckpointReader& reader, const std::string& arena,
               const VariableLayout& layout, std::span<float> to);
// Reads all of them, and the count of updates. Throws Error(kData); Error(kUsage) if the network is
// another one.
void RestoreVariables(const CheckpointReader& reader, Variables& variables);

}  // namespace muster
