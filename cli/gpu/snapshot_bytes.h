// A snapshot of the GPUs as bytes, between two processes of one program.
#pragma once

#include <string>

#include "cli/gpu/gpu.h"

namespace muster {

std::string BytesOf(const GpuSnapshot& snapshot);
// What is missing at the end is empty.
GpuSnapshot SnapshotOf(const std::string& bytes);

}  // namespace muster
