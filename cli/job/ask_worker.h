// What a worker says of its memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/plan/memory_rows.h"

namespace muster {

// Starts the worker program with --memory, which makes all kernels of the worker of this rank but
// none of its arrays, and says how large everything would be. `config` is resolved. Throws Error as
// RunJsonProgram does, among others for a network that the worker cannot run.
std::vector<MemoryRow> AskWorkerMemory(const std::string& worker_program,
                                       const config::Config& config, uint32_t rank);

}  // namespace muster
