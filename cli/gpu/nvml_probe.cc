#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/gpu/gpu_probe.h"
#include "cli/gpu/nvml_api.h"
#include "cli/gpu/nvml_card.h"
#include "common/base/utf8.h"

namespace muster {
namespace {

constexpr unsigned kMostCards = 256;

// Loaded while the program runs, and perhaps missing. Let go with this object.
class Library {
 public:
  explicit Library(const std::string& name)
      : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) error_ = ::dlerror();
  }
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const std::string& error() const { return error_; }  // why it cannot be loaded

  // Sets `function` to the first of these names that the library has, or to null.
  template <typename Function, typename... Names>
  void Get(Function*& function, Names... names) const {
    function = nullptr;
    const auto find = [this](const char* name) {
      return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle_, name));
    };
    ((function = function != nullptr ? function : find(names)), ...);
  }

 private:
  void* handle_;
  std::string error_;
};

nvml::Api LoadApi(const Library& library) {
  nvml::Api api{};
  library.Get(api.init, "nvmlInit_v2", "nvmlInit");
  library.Get(api.shutdown, "nvmlShutdown");
  library.Get(api.error_string, "nvmlErrorString");
  library.Get(api.driver_version, "nvmlSystemGetDriverVersion");
  library.Get(api.count, "nvmlDeviceGetCount_v2");
  library.Get(api.handle, "nvmlDeviceGetHandleByIndex_v2");
  library.Get(api.uuid, "nvmlDeviceGetUUID");
  library.Get(api.name, "nvmlDeviceGetName");
  library.Get(api.pci, "nvmlDeviceGetPciInfo_v3");
  library.Get(api.memory, "nvmlDeviceGetMemoryInfo");
  library.Get(api.memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  library.Get(api.utilization, "nvmlDeviceGetUtilizationRates");
  library.Get(api.temperature, "nvmlDeviceGetTemperature");
  library.Get(api.temperature_threshold, "nvmlDeviceGetTemperatureThreshold");
  library.Get(api.power, "nvmlDeviceGetPowerUsage");
  library.Get(api.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  library.Get(api.compute_mode, "nvmlDeviceGetComputeMode");
  library.Get(api.ecc_mode, "nvmlDeviceGetEccMode");
  library.Get(api.ecc_errors, "nvmlDeviceGetTotalEccErrors");
  // Not the first ones: their ProcessInfo is shorter.
  library.Get(api.compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3",
              "nvmlDeviceGetComputeRunningProcesses_v2");
  library.Get(api.graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses_v3",
              "nvmlDeviceGetGraphicsRunningProcesses_v2");
  library.Get(api.mps_processes, "nvmlDeviceGetMPSComputeRunningProcesses_v3",
              "nvmlDeviceGetMPSComputeRunningProcesses_v2");
  library.Get(api.mig_mode, "nvmlDeviceGetMigMode");
  library.Get(api.mig_count, "nvmlDeviceGetMaxMigDeviceCount");
  library.Get(api.mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex");
  library.Get(api.common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  library.Get(api.p2p_status, "nvmlDeviceGetP2PStatus");
  library.Get(api.cpu_affinity, "nvmlDeviceGetCpuAffinityWithinScope");
  library.Get(api.memory_affinity, "nvmlDeviceGetMemoryAffinity");
  return api;
}

// Two GPUs of one UUID cannot be told apart, and one lock would stand for both.
void MarkDoubles(std::vector<Gpu>& gpus) {
  for (Gpu& gpu : gpus) {
    const auto same = [&gpu](const Gpu& other) { return other.uuid == gpu.uuid; };
    if (!gpu.uuid.empty() && std::ranges::count_if(gpus, same) > 1) {
      gpu.trouble = "another GPU says that it has the same UUID";
    }
  }
}

class NvmlProbe : public GpuProbe {
 public:
  explicit NvmlProbe(const std::string& name) : library_(name), api_(LoadApi(library_)) {
    if (!library_.error().empty()) {
      none_ = fmt::format("no NVIDIA driver was found here ({})", library_.error());
      return;
    }
    const nvml::Result result = nvml::Call(api_.init);
    ready_ = result == nvml::kSuccess;
    if (!ready_) none_ = "the NVIDIA driver does not answer: " + ErrorText(result);
  }
  ~NvmlProbe() override {
    if (ready_) (void)nvml::Call(api_.shutdown);
  }
  NvmlProbe(const NvmlProbe&) = delete;
  NvmlProbe& operator=(const NvmlProbe&) = delete;

  GpuSnapshot Look(LookAtLinks links) override {
    GpuSnapshot seen{.none = none_};
    if (!ready_) return seen;
    std::array<char, 96> version{};
    if (nvml::Call(api_.driver_version, version.data(), unsigned{version.size()}) ==
        nvml::kSuccess) {
      version.back() = '\0';
      seen.driver = ValidUtf8(version.data());
    }
    unsigned count = 0;
    const nvml::Result result = nvml::Call(api_.count, &count);
    if (result != nvml::kSuccess) {
      seen.none = "the NVIDIA driver does not say how many GPUs there are: " + ErrorText(result);
      return seen;
    }
    std::vector<nvml::Device> devices;  // one for each of seen.gpus
    for (unsigned i = 0; i < std::min(count, kMostCards); ++i) AddCard(i, seen.gpus, devices);
    MarkDoubles(seen.gpus);
    if (seen.gpus.empty()) seen.none = "the NVIDIA driver has no GPUs";
    if (links == LookAtLinks::kYes) seen.links = LinksOf(devices);
    return seen;
  }

 private:
  std::string ErrorText(nvml::Result result) const {
    const char* const text = api_.error_string != nullptr ? api_.error_string(result) : nullptr;
    return text != nullptr ? ValidUtf8(text) : fmt::format("error {}", result);
  }

  void AddCard(unsigned index, std::vector<Gpu>& gpus, std::vector<nvml::Device>& devices) const {
    nvml::Device device = nullptr;
    const nvml::Result result = nvml::Call(api_.handle, index, &device);
    if (result != nvml::kSuccess) {
      // Its place is kept: the others' indices stay what nvidia-smi says.
      gpus.push_back({.index = std::to_string(index), .trouble = ErrorText(result)});
      devices.push_back(nullptr);
      return;
    }
    const std::vector<nvml::Device> parts = nvml::PartsOf(api_, device);
    if (parts.empty()) {
      gpus.push_back(nvml::ReadCard(api_, device, std::to_string(index)));
      devices.push_back(device);
      return;
    }
    const Gpu whole = nvml::ReadCard(api_, device, std::to_string(index));
    for (size_t i = 0; i < parts.size(); ++i) {
      Gpu part = nvml::ReadCard(api_, parts[i], fmt::format("{}:{}", index, i));
      // What only the whole card knows.
      part.pci = whole.pci;
      part.temperature = whole.temperature;
      part.slowdown_temperature = whole.slowdown_temperature;
      part.power_w = whole.power_w;
      part.power_limit_w = whole.power_limit_w;
      part.ecc = whole.ecc;
      part.ecc_errors = whole.ecc_errors;
      part.cores = whole.cores;
      part.memory_nodes = whole.memory_nodes;
      gpus.push_back(std::move(part));
      devices.push_back(parts[i]);
    }
  }

  std::vector<std::vector<GpuLink>> LinksOf(const std::vector<nvml::Device>& devices) const {
    std::vector<std::vector<GpuLink>> links(devices.size(),
                                            std::vector<GpuLink>(devices.size(), GpuLink::kSystem));
    for (size_t a = 0; a < devices.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        if (devices[a] == nullptr || devices[b] == nullptr) continue;
        links[a][b] = links[b][a] = nvml::LinkOf(api_, devices[a], devices[b]);
      }
    }
    return links;
  }

  Library library_;
  nvml::Api api_;
  bool ready_ = false;
  std::string none_;
};

}  // namespace

std::unique_ptr<GpuProbe> OpenNvml(const std::string& library) {
  return std::make_unique<NvmlProbe>(library);
}

}  // namespace muster
