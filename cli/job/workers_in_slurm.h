// `muster launch` in a Slurm job of several nodes: the server is a child of the launcher, as usual,
// and one srun starts all workers. Slurm has no second way to tell the workers of the server's
// address and token, so both travel with srun: the address as an argument, the token on standard
// input. A file with the token would stay on the shared disk if the launcher were killed.
#pragma once

#include <string>

#include "cli/job/job_plan.h"
#include "cli/job/launch_command.h"
#include "proto/config_fwd.h"

namespace muster {

// Throws Error(kUsage) if settings do not fit this Slurm job of several nodes.
void CheckForSlurm(const LaunchArguments& arguments, const SlurmJob& job, config::Config config);

// Fills in what Slurm decides. Throws Error if settings contradict the Slurm job, or if there is no
// srun.
void PlanInSlurm(const LaunchArguments& arguments, config::Config& config);

// Whether Slurm has requeued this job, so that its run goes on. Prints a warning if it cannot,
// because it has no directory of its own.
bool IsRequeued(const LaunchArguments& arguments);

// Prints a warning if srun limits this launch to one of the job's hosts.
void WarnOfOneHost(const LaunchArguments& arguments);

// The addresses of a server for workers on other nodes. Throws Error(kUsage) if there is no
// cluster.interface.
WorkersByHand AddressesInSlurm(const config::Config& config);

// "on 2 nodes of Slurm job 42", or "" if the workers are on this host.
std::string StepText(const LaunchArguments& arguments);

// Adds the addresses and the srun to the plan, which must not be moved afterwards. Throws
// Error(kUsage) if the nodes could not read the config.
void PlanStep(const LaunchArguments& arguments, JobPlan& plan);

}  // namespace muster
