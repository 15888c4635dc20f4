#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "cli/gpu/driver_child.h"
#include "cli/gpu/gpu.h"
#include "cli/gpu/snapshot_bytes.h"
#include "cli/gpu/usage.h"
#include "common/base/text.h"
#include "common/gpu/nvml.h"

namespace muster::nvml {
namespace {

constexpr unsigned kMostCards = 256;
constexpr unsigned kMostParts = 64;  // parts of one GPU
constexpr unsigned kMostNodes = 1024;

std::string ReadText(const Api& api, Result (*read)(Device, char*, unsigned), Device device,
                     std::string& trouble) {
  std::array<char, 96> text{};
  const Result result = Call(read, device, text.data(), unsigned{text.size()});
  if (result != kSuccess) {
    trouble = ErrorOf(api, result);
    return "";
  }
  text.back() = '\0';
  return ValidUtf8(text.data());
}

void ReadMemory(const Api& api, Device device, Gpu& gpu) {
  // Prefer the newer call: in the older one, "used" includes the driver's own memory.
  MemoryV2 memory{.version = kMemoryV2};
  Result result = Call(api.memory_v2, device, &memory);
  if (result != kSuccess) {
    Memory older{};
    result = Call(api.memory, device, &older);
    memory = {.total = older.total, .free = older.free, .used = older.used};
  }
  if (result != kSuccess) {
    if (gpu.trouble.empty()) gpu.trouble = "cannot read its memory: " + ErrorOf(api, result);
    return;
  }
  gpu.total_bytes = memory.total;
  gpu.free_bytes = memory.free;
  gpu.used_bytes = memory.used;
  if (memory.total == 0 || memory.free > memory.total || memory.used > memory.total) {
    gpu.trouble = fmt::format("its memory does not add up: {} bytes free and {} used of {}",
                              memory.free, memory.used, memory.total);
  }
}

void ReadModes(const Api& api, Device device, Gpu& gpu) {
  int mode = 0;
  if (Call(api.compute_mode, device, &mode) == kSuccess) {
    gpu.exclusive = mode == kComputeExclusive;
    if (mode == kComputeProhibited && gpu.trouble.empty()) {
      gpu.trouble = "its compute mode is PROHIBITED (nvidia-smi -c)";
    }
  }
  int now = 0, later = 0;
  if (Call(api.ecc_mode, device, &now, &later) != kSuccess) return;
  gpu.ecc = now != 0;
  unsigned long long errors = 0;
  if (now != 0 &&
      Call(api.ecc_errors, device, kEccUncorrected, kEccVolatile, &errors) == kSuccess) {
    gpu.ecc_errors = errors;
  }
}

void AddProcesses(Result (*list)(Device, unsigned*, ProcessInfo*), Device device, bool computes,
                  std::vector<GpuProcess>& all) {
  std::vector<ProcessInfo> found(64);
  Result result = kInsufficientSize;
  // The number of processes may grow between two calls.
  for (int attempt = 0; attempt < 4 && result == kInsufficientSize; ++attempt) {
    auto count = static_cast<unsigned>(found.size());
    result = Call(list, device, &count, found.data());
    if (result == kInsufficientSize) {
      found.resize(std::clamp<size_t>(count, 2 * found.size(), 65536));
    } else {
      found.resize(result == kSuccess ? std::min<size_t>(count, found.size()) : 0);
    }
  }
  if (result != kSuccess) return;
  for (const ProcessInfo& process : found) {
    const auto pid = static_cast<pid_t>(process.pid);
    if (std::ranges::any_of(all, [pid](const GpuProcess& known) { return known.pid == pid; })) {
      continue;  // already listed, because it also computes
    }
    GpuProcess seen{.pid = pid, .computes = computes};
    if (process.used_bytes != kBytesUnknown) seen.bytes = process.used_bytes;
    all.push_back(seen);
  }
}

std::vector<int> ReadSet(Result (*read)(Device, unsigned, unsigned long*, unsigned), Device device,
                         unsigned bits) {
  constexpr unsigned kWord = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> words(bits / kWord);
  std::vector<int> numbers;
  const auto size = static_cast<unsigned>(words.size());
  if (Call(read, device, size, words.data(), kAffinityNode) != kSuccess) return numbers;
  for (unsigned bit = 0; bit < bits; ++bit) {
    if ((words[bit / kWord] >> (bit % kWord)) & 1) numbers.push_back(static_cast<int>(bit));
  }
  return numbers;
}

// Numbers that NVML does not report, or that are impossible, stay empty. If the UUID or the memory
// cannot be read, sets the GPU's `trouble`.
Gpu ReadCard(const Api& api, Device device, const std::string& index) {
  Gpu gpu{.index = index};
  std::string trouble;
  gpu.uuid = ReadText(api, api.uuid, device, trouble);
  if (gpu.uuid.empty()) gpu.trouble = "it has no UUID: " + trouble;
  gpu.name = ReadText(api, api.name, device, trouble);
  PciInfo pci{};
  if (Call(api.pci, device, &pci) == kSuccess) {
    pci.bus_id[sizeof pci.bus_id - 1] = '\0';
    gpu.pci = ValidUtf8(pci.bus_id);
  }
  ReadMemory(api, device, gpu);
  gpu.sensors = ReadSensors(api, device);
  gpu.limits = ReadLimits(api, device);
  ReadModes(api, device, gpu);
  AddProcesses(api.compute_processes, device, true, gpu.processes);
  AddProcesses(api.mps_processes, device, true, gpu.processes);
  AddProcesses(api.graphics_processes, device, false, gpu.processes);
  gpu.cores = ReadSet(api.cpu_affinity, device, CPU_SETSIZE);
  gpu.memory_nodes = ReadSet(api.memory_affinity, device, kMostNodes);
  return gpu;
}

// The parts of a divided GPU (MIG), as devices; empty for an undivided one.
std::vector<Device> PartsOf(const Api& api, Device device) {
  std::vector<Device> parts;
  unsigned now = 0, pending = 0, most = 0;
  if (Call(api.mig_mode, device, &now, &pending) != kSuccess || now == 0) return parts;
  if (Call(api.mig_count, device, &most) != kSuccess) return parts;
  for (unsigned i = 0; i < std::min(most, kMostParts); ++i) {
    Device part = nullptr;
    if (Call(api.mig_handle, device, i, &part) == kSuccess) parts.push_back(part);
  }
  return parts;
}

GpuLink LinkOf(const Api& api, Device a, Device b) {
  int answer = -1;
  if (Call(api.p2p_status, a, b, kP2pNvlink, &answer) == kSuccess && answer == kP2pOk) {
    return GpuLink::kNvlink;
  }
  if (Call(api.common_ancestor, a, b, &answer) != kSuccess) return GpuLink::kSystem;
  if (answer <= kTopologySingle) return GpuLink::kSwitch;
  if (answer <= kTopologyMultiple) return GpuLink::kSwitches;
  if (answer <= kTopologyHostBridge) return GpuLink::kHostBridge;
  return answer <= kTopologyNode ? GpuLink::kNode : GpuLink::kSystem;
}

}  // namespace
}  // namespace muster::nvml

namespace muster {
namespace {

constexpr int kRestRounds = 20;
constexpr std::chrono::milliseconds kRestPause{100};

// Lives in the child process.
class NvmlReader {
 public:
  explicit NvmlReader(const std::string& name) : library_(name), api_(library_.api()) {}

  GpuSnapshot Look(LookAtLinks links, const DriverChild::Enter& enter) {
    GpuSnapshot seen{.none = library_.trouble()};
    seen.failed = library_.is_there() && !seen.none.empty();
    if (!seen.none.empty()) return seen;
    enter("nvmlDeviceGetCount");
    std::array<char, 96> version{};
    if (nvml::Call(api_.driver_version, version.data(), unsigned{version.size()}) ==
        nvml::kSuccess) {
      version.back() = '\0';
      seen.driver = ValidUtf8(version.data());
    }
    unsigned count = 0;
    const nvml::Result result = nvml::Call(api_.count, &count);
    if (result != nvml::kSuccess) {
      seen.failed = true;
      seen.none =
          "the NVIDIA driver does not report its number of GPUs: " + nvml::ErrorOf(api_, result);
      return seen;
    }
    std::vector<nvml::Device> devices;  // one for each of seen.gpus
    for (unsigned i = 0; i < std::min(count, nvml::kMostCards); ++i) {
      enter(fmt::format("NVML about GPU {}", i));
      AddCard(i, seen.gpus, devices);
    }
    if (seen.gpus.empty()) seen.none = "the NVIDIA driver has no GPUs";
    AwaitRest(seen.gpus, devices);
    enter("NVML about the links between GPUs");
    if (links == LookAtLinks::kYes) seen.links = LinksOf(devices);
    return seen;
  }

 private:
  void AddCard(unsigned index, std::vector<Gpu>& gpus, std::vector<nvml::Device>& devices) const {
    nvml::Device device = nullptr;
    const nvml::Result result = nvml::Call(api_.handle, index, &device);
    if (result != nvml::kSuccess) {
      // Keep its place, so that the indices of the others match nvidia-smi.
      gpus.push_back({.index = std::to_string(index), .trouble = nvml::ErrorOf(api_, result)});
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
      // Only the whole GPU reports these.
      part.pci = whole.pci;
      const auto utilization = part.sensors.utilization;
      part.sensors = whole.sensors;
      part.sensors.utilization = utilization;
      part.limits = whole.limits;
      part.ecc = whole.ecc;
      part.ecc_errors = whole.ecc_errors;
      part.cores = whole.cores;
      part.memory_nodes = whole.memory_nodes;
      gpus.push_back(std::move(part));
      devices.push_back(parts[i]);
    }
  }

  // A utilization is that of up to a second: a job may have ended meanwhile, and the start of an
  // unused driver looks like work. Only what lasts is somebody's.
  void AwaitRest(std::vector<Gpu>& gpus, const std::vector<nvml::Device>& devices) const {
    for (int round = 0; round < kRestRounds && std::ranges::any_of(gpus, HasUnseenWork); ++round) {
      std::this_thread::sleep_for(kRestPause);
      for (size_t i = 0; i < gpus.size(); ++i) {
        if (!HasUnseenWork(gpus[i])) continue;
        gpus[i].sensors.utilization = nvml::ReadSensors(api_, devices[i]).utilization;
      }
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

  const nvml::Library library_;
  const nvml::Api& api_;
};

class NvmlProbe : public GpuProbe {
 public:
  NvmlProbe(const std::string& name, double patience_s)
      : child_(
            "nvmlInit",
            [name, reader = std::shared_ptr<NvmlReader>()](
                char question, const DriverChild::Enter& enter) mutable {
              if (!reader) reader = std::make_shared<NvmlReader>(name);
              return BytesOf(reader->Look(static_cast<LookAtLinks>(question), enter));
            },
            patience_s) {}

  GpuSnapshot Look(LookAtLinks links) override {
    const std::optional<std::string> answer = child_.Ask(static_cast<char>(links));
    if (answer) return SnapshotOf(*answer);
    return {.none = fmt::format("the NVIDIA driver crashed ({})", child_.call()), .failed = true};
  }

 private:
  DriverChild child_;
};

}  // namespace

std::unique_ptr<GpuProbe> OpenNvml(const std::string& library, double patience_s) {
  return std::make_unique<NvmlProbe>(library, patience_s);
}

}  // namespace muster
