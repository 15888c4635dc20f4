// The Slurm job around this process: the srun command that starts a job's workers in it, and the
// batch script that submits a launch. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster/given_rank.h"
#include "proto/config_fwd.h"

namespace muster {

struct SlurmJob {
  std::string id;  // empty: it is still to be submitted
  uint32_t nodes = 1;
  std::vector<uint32_t> node_cores;  // empty: unknown
  uint32_t cores = 1;                // of all nodes
  std::optional<uint32_t> tasks;     // --ntasks, --ntasks-per-node
  std::optional<uint32_t> gpus;      // of all nodes
  std::optional<uint32_t> cores_per_task;
  uint32_t restarts = 0;  // how often Slurm has requeued it
  // Whether srun runs this process: it then has a part of the job, which it cannot divide again.
  bool in_srun = false;
  // Whether this process starts the workers itself: on the job's only node, or in srun.
  bool is_here = false;

  std::string name() const { return id.empty() ? "a Slurm job" : "Slurm job " + id; }
  // The workers that the user asked Slurm for; empty: only nodes or cores.
  std::optional<uint32_t> Workers() const;
};

// The job whose batch script, salloc shell or srun runs this process. Empty outside a job. Throws
// Error(kUsage) if a variable has an invalid value, or if srun has started several launches.
std::optional<SlurmJob> FindSlurmJob(const Environment& environment);

// Fills in what Slurm decides: the workers and their GPUs. `has_cuda`: this build can use GPUs.
// Throws Error(kUsage) if a setting contradicts the job, or if the job has too few cores or GPUs.
void PlanForSlurm(const SlurmJob& job, bool has_cuda, config::Config& config);

struct StepFiles {
  std::string muster;  // this program
  std::string config, logs;
  bool append = false;
};
// The arguments of the srun that starts all workers. They read the token from standard input.
std::vector<std::string> StepArguments(const SlurmJob& job, uint32_t workers,
                                       const StepFiles& files, const std::string& endpoint);

// The options of sbatch that the user typed in one text, in which quotes and \ work as in a shell.
// Throws Error(kUsage) if they do not fit.
std::vector<std::string> BatchOptions(const std::string& text);

// The nodes that these options ask for; 1 if they do not say.
uint32_t NodesAskedFor(const std::vector<std::string>& batch_options);

struct BatchJob {
  std::string options;  // see BatchOptions
  std::string name;
  std::string launch;  // the command line
  bool can_resume = true;
};
// The script for `sbatch`.
std::string BatchScript(const BatchJob& job);

// The variables of a job around this process that must not reach a job that it submits.
std::vector<std::string> VariablesOfOuterJob(const Environment& environment);

}  // namespace muster
