// Whether a job can fit into this machine, said before it is started. `muster launch --dry-run`
// knows more exactly, but asks a worker, whose kernels are made for that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/graph/graph.h"
#include "common/plan/memory_rows.h"
#include "proto/config_fwd.h"

namespace muster {

// The memory of this machine, or of this process's control group if that is less.
struct MachineMemory {
  double all = 0;        // with swap
  double available = 0;  // now, without it
};
MachineMemory ReadMachineMemory();

// What a job cannot do without, in bytes: weights, gradients, optimizer state, what layers keep for
// the backward pass, the order of the samples. What it uses is more.
struct LeastMemory {
  double server = 0, each_worker = 0;
  int workers = 1;
  double all() const { return server + workers * each_worker; }
};
// `config` is resolved.
LeastMemory LeastMemoryOf(const config::Config& config, const Graph& graph);

// The same with everything that a worker says of itself.
LeastMemory WholeMemoryOf(const config::Config& config, const Graph& graph,
                          const std::vector<MemoryRow>& worker);

// A warning if there is less available than needed, "" if it may fit. Throws Error(kUsage) if the
// machine does not have that much.
std::string CheckMemory(const LeastMemory& needed, const MachineMemory& machine);

// Planes, optimizer state, the workers' gradients.
std::vector<MemoryRow> ServerMemory(const config::Config& config, const Graph& graph);

// Starts the worker program with --memory, which makes all kernels of the worker of this rank but
// none of its arrays, and says how large everything would be. `config` is resolved. Throws Error as
// RunJsonProgram does, among others for a network that the worker cannot run.
std::vector<MemoryRow> AskWorkerMemory(const std::string& worker_program,
                                       const config::Config& config, uint32_t rank);

}  // namespace muster
