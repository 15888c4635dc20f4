// Checks whether a job fits into this machine before it starts. `muster launch --dry-run` is more
// exact: it runs a worker, which builds its kernels and reports their memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/graph/graph.h"
#include "common/plan/memory_rows.h"
#include "proto/config_fwd.h"

namespace muster {

// The memory of this machine, or of the control group of this process if that is less. In bytes.
struct MachineMemory {
  double all = 0;        // including swap
  double available = 0;  // available now, without swap
};
MachineMemory ReadMachineMemory();

// The minimum memory of a job, in bytes: weights, gradients, optimizer state, outputs that layers
// keep for the backward pass, and the sample order. The job uses more.
struct LeastMemory {
  double server = 0, each_worker = 0;
  int workers = 1;
  double all() const { return server + workers * each_worker; }
};
// `config` is resolved.
LeastMemory LeastMemoryOf(const config::Config& config, const Graph& graph);

// Like LeastMemoryOf, but includes everything that the worker reported.
LeastMemory WholeMemoryOf(const config::Config& config, const Graph& graph,
                          const std::vector<MemoryRow>& worker);

// Returns a warning if less is available than needed, "" if the job may fit. Throws Error(kUsage)
// if the machine does not have that much.
std::string CheckMemory(const LeastMemory& needed, const MachineMemory& machine);

// Weights, optimizer state, and the workers' gradients.
std::vector<MemoryRow> ServerMemory(const config::Config& config, const Graph& graph);

// Runs the worker program with `memory`: it builds all kernels for this rank but allocates no
// arrays, and reports their sizes. `config` is resolved. Throws Error as RunJsonProgram does, for
// example if the worker cannot run the network.
std::vector<MemoryRow> AskWorkerMemory(const std::string& worker_program,
                                       const config::Config& config, uint32_t rank);

}  // namespace muster
