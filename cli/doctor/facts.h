// This machine, this process's limits, and the GPUs with whether Muster can compute on one now.
// Read once, judged by examine.h.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/gpu/ticket.h"
#include "cli/job/memory_check.h"
#include "common/config/config.h"
#include "proto/config_fwd.h"

namespace muster {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// A program and the libraries that the loader finds for it.
struct ProgramFacts {
  std::string path;
  bool there = false;
  std::vector<std::string> libraries;  // file names with versions: libdnnl.so.2.6
  std::vector<std::string> missing;    // that it needs and the loader does not find
};

struct MachineFacts {
  std::string system, libc;  // "Linux 6.1.0", "glibc 2.36"
  std::vector<ProgramFacts> programs;

  std::string processor;
  int cores = 0;                              // that this process may use
  double load = 0;                            // processes that want to run, over the last minute
  std::vector<std::string> instruction_sets;  // as server.instruction_set, the widest last

  MachineMemory memory;
  // Soft limits.
  double open_files = kUnlimited, most_open_files = kUnlimited;  // the second: it can be raised to
  double address_space = kUnlimited, locked_memory = kUnlimited, file_size = kUnlimited;
  double processes = kUnlimited;

  double disk_free = 0;    // where run directories go
  std::string disk_error;  // why nothing can be written there, or ""
  std::string shared_memory_error, tcp_error, unix_error;  // "" where they work
  std::string clock_source;                                // of the kernel; "" if not known
  bool clock_synchronized = true;
  int64_t year = 0;  // by the clock
};

// `run_parent`: the directory in which run directories are made, or would be. Writes and removes an
// empty file there, and binds sockets for a moment.
MachineFacts ReadMachineFacts(const std::vector<std::string>& programs,
                              const std::string& run_parent);

// Whether files can be written there: "" or the system's reason why not.
std::string TryToWrite(const std::string& directory);

struct GpuFacts {
  GpuSnapshot seen;
  std::vector<TicketText> tickets;  // of the jobs that hold or want GPUs

  bool job = false;        // there is a job that would use GPUs
  bool wanted = false;     // by its config or --devices
  uint32_t workers = 0;    // that compute on them; 0: the job uses no GPUs
  std::string taken;       // the GPUs that could be locked now, in words
  std::string take_error;  // why they could not
  std::string why_cpu;     // why the job would run on the CPU although it asks for GPUs

  // Workers that computed on the locked GPUs name the GPU, the versions of CUDA, cuBLAS and cuDNN,
  // and the precision. Both are empty if no GPU could be locked.
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
