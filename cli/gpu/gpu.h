// The GPUs of this machine as values: what somebody saw of them at one moment, and who looks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace muster {

struct GpuProcess {
  pid_t pid = 0;  // in the process namespace of the driver
  std::optional<uint64_t> bytes;
  bool computes = true;  // else it only draws: a desktop
};

// One GPU, or one part of a GPU that is divided (MIG): whatever a worker can have for itself.
struct Gpu {
  std::string index;    // NVML's and nvidia-smi's: "2"; of the first part of that one: "2:0"
  std::string uuid;     // GPU-…, MIG-…
  std::string name;     // NVIDIA H100 80GB HBM3
  std::string pci;      // 00000000:3B:00.0
  std::string trouble;  // why nobody should compute on it: it is lost, or says what cannot be

  uint64_t total_bytes = 0, free_bytes = 0, used_bytes = 0;
  std::optional<unsigned> utilization;                        // percent of the last moments
  std::optional<unsigned> temperature, slowdown_temperature;  // degrees Celsius
  std::optional<double> power_w, power_limit_w;
  std::optional<bool> ecc;             // whether its memory corrects errors; empty: not known
  std::optional<uint64_t> ecc_errors;  // since the driver was loaded, those it could not correct
  bool exclusive = false;              // compute mode EXCLUSIVE_PROCESS: one process at a time
  std::vector<GpuProcess> processes;

  std::vector<int> cores, memory_nodes;  // of the host, beside it; empty: not known
};

// How two GPUs reach one another, the closest first. The numbers are ranks, and nothing else.
enum class GpuLink { kNvlink = 0, kSwitch, kSwitches, kHostBridge, kNode, kSystem };

struct GpuSnapshot {
  std::string driver;  // its version
  std::string none;    // why there are no GPUs, in a line; "" where there are some
  std::vector<Gpu> gpus;
  // links[a][b] of gpus[a] and gpus[b]; empty unless it was asked for.
  std::vector<std::vector<GpuLink>> links;

  // The GPU of this UUID, or null.
  const Gpu* Find(const std::string& uuid) const {
    for (const Gpu& gpu : gpus) {
      if (gpu.uuid == uuid) return &gpu;
    }
    return nullptr;
  }
};

// Where a worker is to run: its GPU, and what of the host is beside that.
struct WorkerPlace {
  Gpu gpu;
  // Locks that the worker inherits, so that they hold as long as it lives.
  std::vector<int> lock_fds;
  std::vector<std::string> environment;  // CUDA_VISIBLE_DEVICES=<UUID>: it sees this GPU alone
  std::vector<int> cores;                // of the GPU's NUMA node; empty: all that there are
  int memory_node = -1;                  // for its memory, page-locked memory too; -1: any
};

enum class LookAtLinks { kNo, kYes };

// Used by one thread. A look makes no context on any GPU, and changes nothing.
class GpuProbe {
 public:
  virtual ~GpuProbe() = default;
  // What is there now. Never throws for what a GPU or the driver does: a GPU that cannot be read
  // has its trouble, and a machine without GPUs says why it has none.
  virtual GpuSnapshot Look(LookAtLinks links = LookAtLinks::kNo) = 0;
};

// NVML, the driver's library of management, loaded when this is called: muster is not linked with
// it. Where it is missing every look finds none. The library is let go when the probe is.
std::unique_ptr<GpuProbe> OpenNvml(const std::string& library = "libnvidia-ml.so.1");

}  // namespace muster
