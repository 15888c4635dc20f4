// Facts about this machine, the limits of this process and the GPUs, and whether Muster can compute
// on one now. examine.h judges them.
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

// A program and its shared libraries.
struct ProgramFacts {
  std::string path;
  bool there = false;
  std::vector<std::string> libraries;  // file names with versions: libdnnl.so.2.6
  std::vector<std::string> missing;    // libraries that the loader does not find
};

struct MachineFacts {
  std::string system, libc;  // "Linux 6.1.0", "glibc 2.36"
  std::vector<ProgramFacts> programs;

  std::string processor;
  int cores = 0;                              // cores that this process may use
  double load = 0;                            // the load average over the last minute
  std::vector<std::string> instruction_sets;  // as in server.instruction_set, the widest last
  bool bf16 = false;                          // AVX512-BF16, for worker.precision BF16

  MachineMemory memory;
  // Soft limits, except the hard limit most_open_files.
  double open_files = kUnlimited, most_open_files = kUnlimited;
  double address_space = kUnlimited, locked_memory = kUnlimited, file_size = kUnlimited;
  double processes = kUnlimited;

  double disk_free = 0;    // free bytes in the place for run directories
  std::string disk_error;  // why nothing can be written there, or ""
  std::string shared_memory_error, tcp_error, unix_error;  // "" if they work
  std::string clock_source;                                // the kernel's; "" if unknown
  bool clock_synchronized = true;
  int64_t year = 0;  // according to the clock
};

// `run_parent` is the place for run directories. Writes and removes a small file there, and binds
// sockets for a moment.
MachineFacts ReadMachineFacts(const std::vector<std::string>& programs,
                              const std::string& run_parent);

// Returns "" if files can be written to the directory, otherwise the error.
std::string TryToWrite(const std::string& directory);

struct GpuFacts {
  GpuSnapshot seen;
  std::string driver_error;         // why nothing else is known: the driver hangs; or ""
  std::vector<TicketText> tickets;  // tickets of the jobs that hold or want GPUs

  bool job = false;        // the config or --devices describes a job that would use GPUs
  bool wanted = false;     // that job requests them explicitly
  uint32_t workers = 0;    // number of workers on GPUs; 0: the job uses none
  std::string taken;       // the GPUs that could be locked now, as text
  std::string take_error;  // why they could not be locked
  std::string why_cpu;     // why the job would run on the CPU although it requests GPUs

  // What workers on the locked GPUs reported: the GPU, the versions of CUDA, cuBLAS and cuDNN, and
  // the precision. Both texts are empty if no GPU could be locked.
  std::string backend;
  std::string backend_error;      // error of the first GPU that failed
  bool computes_wrongly = false;  // the results differ from the CPU: no run starts on that GPU
};

struct GpuQuestion {
  const config::Config* config = nullptr;  // not resolved; null: check only the machine
  std::string config_path;
  std::vector<Setting> settings;  // without a config: only worker.devices, or empty
  std::string worker_program;
};

// Locks the GPUs that the job would get, or one idle GPU, while workers compute on them. Throws
// Error(kUsage) for unknown devices.
GpuFacts ReadGpuFacts(const GpuQuestion& question);

}  // namespace muster
