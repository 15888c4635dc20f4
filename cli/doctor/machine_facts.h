// This machine and this process's limits, as they are now. Read once, judged by examine.h.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cli/job/memory_check.h"

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

}  // namespace muster
