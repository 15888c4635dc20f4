// Decides how many GPUs a job wants and which ones it may take, from the request and from
// CUDA_VISIBLE_DEVICES.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/gpu/gpu.h"
#include "cli/gpu/take_gpus.h"
#include "cli/gpu/visible_devices.h"
#include "common/config/hardware.h"

namespace muster {

struct GpuRequest {
  DeviceWish devices;
  std::string origin;               // as the user gave it: "--devices auto:4"
  bool typed = false;               // on the command line
  std::optional<uint32_t> workers;  // empty if not given
  uint32_t workers_per_gpu = 1;
  double memory_fraction = 0;  // the part of a GPU's memory for each worker; 0: not given
  std::string what;            // the job, in a few words
  // The job does not mention devices: it takes idle GPUs, if there are any.
  bool by_default = false;
  // For by_default, the UUIDs of the idle GPUs. Empty: the job waits for GPUs.
  std::optional<std::vector<std::string>> idle;
};

struct GpuPlan {
  std::optional<GpuWish> wish;  // none: the CPU
  uint32_t workers = 0;         // that go with these GPUs
  std::string reason;           // for the wish, or why there is none
  std::string hint;             // how to have more of them, or none; may be empty
};

// A command line that names GPUs has them, even those that CUDA_VISIBLE_DEVICES hides; in all
// other cases the choice is made among what it leaves, and a config that names others yields.
// Throws Error(kUsage) for GPUs that are not there, for more than there are, and for a number of
// workers that does not go with the number of GPUs; by default Error(kFailure) where only some of
// the GPUs that the workers need are idle. Where none is, the plan is the CPU.
GpuPlan PlanGpus(const GpuRequest& request, const GpuSnapshot& seen, const VisibleGpus& visible);

}  // namespace muster
