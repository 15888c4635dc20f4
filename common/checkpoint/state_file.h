// state.pb of a checkpoint: a checkpoint::State behind a head that says what it is, which version
// of the format, how long, and its checksum.
#pragma once

#include <cstdint>
#include <string>

#include "proto/checkpoint.pb.h"

namespace muster {

// A reader refuses versions that are newer than its own: what they hold it could lose.
constexpr uint32_t kCheckpointFormat = 1;

std::string StateFileBytes(const checkpoint::State& state);

// Throws Error(kData) that begins with `file` and says what is wrong: not a state file, cut short,
// damaged; and Error(kUsage) for a newer version.
checkpoint::State ParseStateFile(const std::string& file, const std::string& bytes);

}  // namespace muster
