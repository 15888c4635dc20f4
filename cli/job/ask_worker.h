// What a worker says of its memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/memory_rows.h"

namespace muster {

// Starts the worker program with --memory, which makes all kernels of the worker of this rank but
// none of its arrays, and says how large everything would be. `config` is the resolved one, of the
// file and the settings given. Throws Error as RunJsonProgram does, among others for a network that
// the worker cannot run.
std::vector<MemoryRow> AskWorkerMemory(const std::string& worker_program,
                                       const std::string& config_path,
                                       const std::vector<Setting>& settings,
                                       const config::Config& config, uint32_t rank);

}  // namespace muster
