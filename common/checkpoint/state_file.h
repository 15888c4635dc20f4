// The file state.pb of a checkpoint: a checkpoint::State after a header with magic, format version,
// length and checksum.
#pragma once

#include <cstdint>
#include <string>

#include "proto/checkpoint.pb.h"

namespace muster {

// Readers refuse files of newer versions, because they could lose information in them.
constexpr uint32_t kCheckpointFormat = 1;

std::string StateFileBytes(const checkpoint::State& state);

// Throws Error(kData) that begins with `file` and gives the reason: not a state file, truncated, or
// damaged. Throws Error(kUsage) for a newer version.
checkpoint::State ParseStateFile(const std::string& file, const std::string& bytes);

}  // namespace muster
