// Declares the part of NVML that Muster calls. NVML's own header belongs to the CUDA toolkit, which
// is not needed to build Muster. Names, numbers and layouts follow the documented binary interface
// (docs.nvidia.com, "NVML API Reference"). That interface only grows: changed functions get new
// names (_v2, _v3).
#pragma once

#include <dlfcn.h>

#include <memory>
#include <optional>
#include <string>

namespace muster::nvml {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInsufficientSize = 7;
inline constexpr Result kFunctionNotFound = 13;

struct DeviceTag;
using Device = DeviceTag*;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct Memory {
  unsigned long long total, free, used;  // used: includes the driver's own memory
};

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;  // used: excludes that memory, as in nvidia-smi
};
inline constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | (2u << 24);

struct Utilization {
  unsigned gpu, memory;  // percent
};

// Filled in by _v2 and _v3 of the calls that list processes.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;  // all ones: unknown
  unsigned gpu_instance, compute_instance;
};
inline constexpr unsigned long long kBytesUnknown = ~0ull;

inline constexpr int kTemperatureGpu = 0;     // a sensor
inline constexpr int kThresholdSlowdown = 1;  // a threshold
inline constexpr int kComputeProhibited = 2;  // a compute mode
inline constexpr int kComputeExclusive = 3;   // a compute mode: EXCLUSIVE_PROCESS
inline constexpr int kEccUncorrected = 1;     // a kind of memory error
inline constexpr int kEccVolatile = 0;        // a counter: since the driver was loaded
inline constexpr int kP2pNvlink = 2;          // a query about a pair of GPUs
inline constexpr int kP2pOk = 0;              // its answer
inline constexpr unsigned kAffinityNode = 0;  // a scope
// Levels of nvmlDeviceGetTopologyCommonAncestor.
inline constexpr int kTopologySingle = 10, kTopologyMultiple = 20, kTopologyHostBridge = 30,
                     kTopologyNode = 40;

// A function of the library, of any type; null if this driver lacks it.
struct Symbol {
  void* address;
  template <typename Function>
  operator Function*() const {  // NOLINT(google-explicit-constructor)
    return reinterpret_cast<Function*>(address);
  }
};

struct Api {
  void* library;  // from dlopen; null if there is none

  Result (*init)() = Find("nvmlInit_v2", "nvmlInit");
  Result (*shutdown)() = Find("nvmlShutdown");
  const char* (*error_string)(Result) = Find("nvmlErrorString");
  Result (*driver_version)(char*, unsigned) = Find("nvmlSystemGetDriverVersion");
  Result (*count)(unsigned*) = Find("nvmlDeviceGetCount_v2");
  Result (*handle)(unsigned, Device*) = Find("nvmlDeviceGetHandleByIndex_v2");
  Result (*handle_by_pci)(const char*, Device*) = Find("nvmlDeviceGetHandleByPciBusId_v2");
  Result (*handle_by_uuid)(const char*, Device*) = Find("nvmlDeviceGetHandleByUUID");
  Result (*uuid)(Device, char*, unsigned) = Find("nvmlDeviceGetUUID");
  Result (*name)(Device, char*, unsigned) = Find("nvmlDeviceGetName");
  Result (*pci)(Device, PciInfo*) = Find("nvmlDeviceGetPciInfo_v3");
  Result (*memory)(Device, Memory*) = Find("nvmlDeviceGetMemoryInfo");
  Result (*memory_v2)(Device, MemoryV2*) = Find("nvmlDeviceGetMemoryInfo_v2");
  Result (*utilization)(Device, Utilization*) = Find("nvmlDeviceGetUtilizationRates");
  Result (*temperature)(Device, int, unsigned*) = Find("nvmlDeviceGetTemperature");
  Result (*temperature_threshold)(Device, int,
                                  unsigned*) = Find("nvmlDeviceGetTemperatureThreshold");
  Result (*power)(Device, unsigned*) = Find("nvmlDeviceGetPowerUsage");
  Result (*power_limit)(Device, unsigned*) = Find("nvmlDeviceGetEnforcedPowerLimit");
  Result (*compute_mode)(Device, int*) = Find("nvmlDeviceGetComputeMode");
  Result (*ecc_mode)(Device, int*,
                     int*) = Find("nvmlDeviceGetEccMode");  // now, and after the next reboot
  Result (*ecc_errors)(Device, int, int, unsigned long long*) = Find("nvmlDeviceGetTotalEccErrors");
  // The first version of these is not used: its ProcessInfo is shorter.
  Result (*compute_processes)(Device, unsigned*,
                              ProcessInfo*) = Find("nvmlDeviceGetComputeRunningProcesses_v3",
                                                   "nvmlDeviceGetComputeRunningProcesses_v2");
  Result (*graphics_processes)(Device, unsigned*,
                               ProcessInfo*) = Find("nvmlDeviceGetGraphicsRunningProcesses_v3",
                                                    "nvmlDeviceGetGraphicsRunningProcesses_v2");
  Result (*mps_processes)(Device, unsigned*,
                          ProcessInfo*) = Find("nvmlDeviceGetMPSComputeRunningProcesses_v3",
                                               "nvmlDeviceGetMPSComputeRunningProcesses_v2");
  Result (*mig_mode)(Device, unsigned*, unsigned*) = Find("nvmlDeviceGetMigMode");
  Result (*mig_count)(Device, unsigned*) = Find("nvmlDeviceGetMaxMigDeviceCount");
  Result (*mig_handle)(Device, unsigned, Device*) = Find("nvmlDeviceGetMigDeviceHandleByIndex");
  Result (*common_ancestor)(Device, Device, int*) = Find("nvmlDeviceGetTopologyCommonAncestor");
  Result (*p2p_status)(Device, Device, int, int*) = Find("nvmlDeviceGetP2PStatus");
  Result (*cpu_affinity)(Device, unsigned, unsigned long*,
                         unsigned) = Find("nvmlDeviceGetCpuAffinityWithinScope");
  Result (*memory_affinity)(Device, unsigned, unsigned long*,
                            unsigned) = Find("nvmlDeviceGetMemoryAffinity");

 private:
  Symbol Find(const char* name, const char* older = nullptr) const {
    void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
    return found != nullptr || older == nullptr ? Symbol{found} : Find(older);
  }
};

// Calls a function that may be missing.
template <typename... Parameters, typename... Values>
Result Call(Result (*function)(Parameters...), Values... values) {
  return function == nullptr ? kFunctionNotFound : function(values...);
}

std::string ErrorOf(const Api& api, Result result);

// NVML, the driver's management library, from its load to its unload.
class Library {
 public:
  explicit Library(const std::string& name = "libnvidia-ml.so.1");
  ~Library();
  Library(const Library&) = delete;

  const Api& api() const { return api_; }
  bool is_there() const { return library_ != nullptr; }
  // Why it is missing or does not answer, in one line; "" if it works.
  const std::string& trouble() const { return trouble_; }

 private:
  struct Close {
    void operator()(void* library) const { ::dlclose(library); }
  };
  const std::unique_ptr<void, Close> library_;
  const Api api_;
  std::string trouble_;
};

// Readings of a GPU's sensors. A value is empty if NVML does not report it or if it is impossible.
struct Sensors {
  std::optional<unsigned> utilization;  // percent, over the last moments
  std::optional<unsigned> temperature;  // degrees Celsius
  std::optional<double> power_w;
  std::optional<unsigned long long> used_bytes;  // of memory, by all processes
};
Sensors ReadSensors(const Api& api, Device device);

// The limits of a GPU: the temperature at which it slows down, and its power.
struct Limits {
  std::optional<unsigned> slowdown_temperature;
  std::optional<double> power_w;
};
Limits ReadLimits(const Api& api, Device device);

}  // namespace muster::nvml
