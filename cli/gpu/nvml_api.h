// The part of NVML that Muster calls, declared here: its header belongs to the CUDA toolkit, which
// a machine that builds Muster need not have. Names, numbers and layouts are those of the
// documented binary interface (docs.nvidia.com, "NVML API Reference"), which only grows: what has
// changed has a new name (_v2, _v3).
#pragma once

namespace muster::nvml {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kNotSupported = 3;
inline constexpr Result kInsufficientSize = 7;
inline constexpr Result kFunctionNotFound = 13;
inline constexpr Result kGpuIsLost = 15;

struct DeviceTag;
using Device = DeviceTag*;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct Memory {
  unsigned long long total, free, used;  // used: with what the driver keeps for itself
};

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;  // used: without, as nvidia-smi shows it
};
inline constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | (2u << 24);

struct Utilization {
  unsigned gpu, memory;  // percent
};

// Of _v2 and _v3 of the calls that list processes.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;  // all ones: not known
  unsigned gpu_instance, compute_instance;
};
inline constexpr unsigned long long kBytesUnknown = ~0ull;

inline constexpr int kTemperatureGpu = 0;     // a sensor
inline constexpr int kThresholdSlowdown = 1;  // a threshold
inline constexpr int kComputeProhibited = 2;  // a compute mode
inline constexpr int kComputeExclusive = 3;   // a compute mode: EXCLUSIVE_PROCESS
inline constexpr int kEccUncorrected = 1;     // a kind of memory error
inline constexpr int kEccVolatile = 0;        // a counter: since the driver was loaded
inline constexpr int kP2pNvlink = 2;          // what is asked about a pair
inline constexpr int kP2pOk = 0;              // the answer
inline constexpr unsigned kAffinityNode = 0;  // a scope
// Levels of nvmlDeviceGetTopologyCommonAncestor.
inline constexpr int kTopologySingle = 10, kTopologyMultiple = 20, kTopologyHostBridge = 30,
                     kTopologyNode = 40;

// One pointer for each function, null where this driver's library has it not.
struct Api {
  Result (*init)();
  Result (*shutdown)();
  const char* (*error_string)(Result);
  Result (*driver_version)(char*, unsigned);
  Result (*count)(unsigned*);
  Result (*handle)(unsigned, Device*);
  Result (*uuid)(Device, char*, unsigned);
  Result (*name)(Device, char*, unsigned);
  Result (*pci)(Device, PciInfo*);
  Result (*memory)(Device, Memory*);
  Result (*memory_v2)(Device, MemoryV2*);
  Result (*utilization)(Device, Utilization*);
  Result (*temperature)(Device, int, unsigned*);
  Result (*temperature_threshold)(Device, int, unsigned*);
  Result (*power)(Device, unsigned*);
  Result (*power_limit)(Device, unsigned*);
  Result (*compute_mode)(Device, int*);
  Result (*ecc_mode)(Device, int*, int*);  // now, and after the next reboot
  Result (*ecc_errors)(Device, int, int, unsigned long long*);
  Result (*compute_processes)(Device, unsigned*, ProcessInfo*);
  Result (*graphics_processes)(Device, unsigned*, ProcessInfo*);
  Result (*mps_processes)(Device, unsigned*, ProcessInfo*);
  Result (*mig_mode)(Device, unsigned*, unsigned*);
  Result (*mig_count)(Device, unsigned*);
  Result (*mig_handle)(Device, unsigned, Device*);
  Result (*common_ancestor)(Device, Device, int*);
  Result (*p2p_status)(Device, Device, int, int*);
  Result (*cpu_affinity)(Device, unsigned, unsigned long*, unsigned);
  Result (*memory_affinity)(Device, unsigned, unsigned long*, unsigned);
};

// A call of a function that may be missing.
template <typename... Parameters, typename... Values>
Result Call(Result (*function)(Parameters...), Values... values) {
  return function == nullptr ? kFunctionNotFound : function(values...);
}

}  // namespace muster::nvml
