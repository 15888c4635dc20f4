// This machine's GPUs, and whether Muster can compute on one now. Read once, judged by
// examine_gpus.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/gpu/ticket.h"
#include "common/config/config.h"
#include "proto/config_fwd.h"

namespace muster {

struct GpuFacts {
  GpuSnapshot seen;
  std::vector<TicketText> tickets;  // of the jobs that hold or want GPUs

  bool job = false;        // there is a job that would use GPUs
  bool wanted = false;     // … because its config or --devices says so
  uint32_t workers = 0;    // that compute on them; 0: the job uses no GPUs
  std::string taken;       // the GPUs that could be locked now, in words
  std::string take_error;  // why they could not
  std::string why_cpu;     // why the job would run on the CPU although it asks for GPUs

  // Of the GPUs that could be locked, from workers that computed on them: the GPU, the versions of
  // CUDA, cuBLAS and cuDNN, the precision. Both empty if none could be locked.
  std::string backend;
  std::string backend_error;      // the first one
  bool computes_wrongly = false;  // that is the error: no run starts on that GPU
};

struct GpuQuestion {
  const config::Config* config = nullptr;  // not resolved; null: the machine alone
  std::string config_path;
  std::vector<Setting> settings;  // without a config: worker.devices, or nothing
  std::string worker_program;
};

// Locks the GPUs that the job would get, or one idle GPU, for as long as workers take to
// compute on them. Throws Error(kUsage) for devices that are not there.
GpuFacts ReadGpuFacts(const GpuQuestion& question);

}  // namespace muster
