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
  bool typed = false;               // given on the command line
  std::optional<uint32_t> workers;  // empty if not given
  uint32_t workers_per_gpu = 1;
  double memory_fraction = 0;  // the part of a GPU's memory for each worker; 0: not given
  std::string what;            // the job, in a few words
  // Whether the job does not mention devices. It then takes idle GPUs, if there are any.
  bool by_default = false;
  // For by_default, the UUIDs of the idle GPUs. Empty: the job waits for GPUs.
  std::optional<std::vector<std::string>> idle;
};

struct GpuPlan {
  std::optional<GpuWish> wish;  // empty: use the CPU
  uint32_t workers = 0;         // the number of workers for these GPUs
  std::string reason;           // reason for the wish, or why there is none
  std::string hint;             // how to get more GPUs or none; may be empty
};

// GPUs named on the command line are used even if CUDA_VISIBLE_DEVICES hides them. Otherwise only
// visible GPUs are used, even if the config names others. Throws Error(kUsage) if GPUs do not
// exist, if more are requested than there are, or if the number of workers does not match. By
// default, throws Error(kFailure) if only some of the GPUs that the workers need are idle, and
// plans the CPU if none is idle.
GpuPlan PlanGpus(const GpuRequest& request, const GpuSnapshot& seen, const VisibleGpus& visible);

}  // namespace muster
