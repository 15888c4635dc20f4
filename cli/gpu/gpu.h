// A snapshot of the GPUs of this machine, and the interface that takes it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/gpu/driver_child.h"
#include "common/gpu/nvml.h"

namespace muster {

struct GpuProcess {
  pid_t pid = 0;  // in the process namespace of the driver
  std::optional<uint64_t> bytes;
  bool computes = true;  // false: it only draws, as a desktop does
};

// One GPU, or one part of a divided GPU (MIG): the unit that a worker can have for itself.
struct Gpu {
  std::string index;    // as in NVML and nvidia-smi: "2"; the first part of that GPU: "2:0"
  std::string uuid;     // GPU-…, MIG-…
  std::string name;     // NVIDIA H100 80GB HBM3
  std::string pci;      // 00000000:3B:00.0
  std::string trouble;  // why it is unusable (lost, or reports nonsense), or ""

  uint64_t total_bytes = 0, free_bytes = 0, used_bytes = 0;
  nvml::Sensors sensors;
  nvml::Limits limits;
  std::optional<bool> ecc;             // whether its memory corrects errors; empty: unknown
  std::optional<uint64_t> ecc_errors;  // uncorrected errors since the driver was loaded
  bool exclusive = false;              // compute mode EXCLUSIVE_PROCESS: one process at a time
  std::vector<GpuProcess> processes;

  std::vector<int> cores, memory_nodes;  // of the host, near the GPU; empty: unknown
};

// The connection between two GPUs, closest first. Only the order of the values has a meaning.
enum class GpuLink { kNvlink = 0, kSwitch, kSwitches, kHostBridge, kNode, kSystem };

struct GpuSnapshot {
  std::string driver;   // its version
  std::string none;     // why there are no GPUs, in one line; "" if there are some
  bool failed = false;  // the driver is here but does not work
  std::vector<Gpu> gpus;
  // links[a][b] connects gpus[a] and gpus[b]; empty unless requested.
  std::vector<std::vector<GpuLink>> links;

  // The GPU of this UUID, or null.
  const Gpu* Find(const std::string& uuid) const {
    for (const Gpu& gpu : gpus) {
      if (gpu.uuid == uuid) return &gpu;
    }
    return nullptr;
  }
};

// Where a worker runs: its GPU, and the nearby cores and memory of the host.
struct WorkerPlace {
  Gpu gpu;
  // Locks that the worker inherits and therefore holds as long as it lives.
  std::vector<int> lock_fds;
  std::vector<std::string> environment;  // CUDA_VISIBLE_DEVICES=<UUID>: it sees only this GPU
  std::vector<int> cores;                // of the GPU's NUMA node; empty: all
  int memory_node = -1;                  // for all its memory, even page-locked; -1: any
};

enum class LookAtLinks : char { kNo, kYes };

// Used by one thread. Creates no context on any GPU, and changes nothing.
class GpuProbe {
 public:
  virtual ~GpuProbe() = default;
  // Takes a snapshot. Faults of GPUs or the driver do not throw: they set Gpu::trouble or
  // GpuSnapshot::none. But without an answer nothing is known: throws what DriverChild::Ask throws.
  virtual GpuSnapshot Look(LookAtLinks links = LookAtLinks::kNo) = 0;
};

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// Loads NVML, the driver's management library, in a child process that ends with the probe; muster
// is not linked with it. If it is missing, snapshots have no GPUs.
std::unique_ptr<GpuProbe> OpenNvml(const std::string& library = kNvmlLibrary,
                                   double patience_s = kDriverSeconds);

}  // namespace muster
