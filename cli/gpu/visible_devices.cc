#include "cli/gpu/visible_devices.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <type_traits>

#include "common/base/text.h"

namespace muster {
namespace {

constexpr int kMostGpus = 256;
constexpr int kNoDevice = 100;       // an error code of CUDA
constexpr int kInvalidDevice = 101;  // CUDA_VISIBLE_DEVICES names an unknown GPU

using Uuid = std::array<char, 16>;

// Queries the driver, in the child process. Returns false if that fails.
bool ListUuids(const std::string& library, const DriverChild::Enter& enter,
               std::vector<Uuid>& uuids) {
  void* const cuda = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (cuda == nullptr) return false;
  const auto find = [cuda](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(cuda, name));
    return function != nullptr;
  };
  int (*init)(unsigned) = nullptr;
  int (*get_count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*get_uuid)(Uuid*, int) = nullptr;
  if (!find(init, "cuInit") || !find(get_count, "cuDeviceGetCount") || !find(get, "cuDeviceGet")) {
    return false;
  }
  // Only the _v2 function supports MIG.
  if (!find(get_uuid, "cuDeviceGetUuid_v2") && !find(get_uuid, "cuDeviceGetUuid")) return false;
  int count = 0;
  int result = init(0);
  enter("the CUDA driver about its GPUs");
  if (result == 0) result = get_count(&count);
  if (result == kNoDevice || result == kInvalidDevice) return true;
  for (int i = 0, device = 0; result == 0 && i < std::min(count, kMostGpus); ++i) {
    result = get(&device, i);
    if (result == 0) result = get_uuid(&uuids.emplace_back(), device);
  }
  return result == 0;
}

// The part of "GPU-1b2c…" or "MIG-1b2c…" after the kind, in lower case and without dashes.
std::string Digits(const std::string& uuid) {
  std::string digits;
  for (const char c :
       uuid.starts_with("GPU-") || uuid.starts_with("MIG-") ? uuid.substr(4) : uuid) {
    if (c != '-') digits += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return digits;
}

// Returns the UUIDs of the GPUs that the driver lists. A GPU that NVML does not report cannot be
// locked.
std::vector<std::string> Matched(const std::vector<std::string>& answered,
                                 const GpuSnapshot& seen) {
  std::vector<std::string> uuids;
  for (const std::string& digits : answered) {
    for (const Gpu& gpu : seen.gpus) {
      if (!gpu.uuid.empty() && Digits(gpu.uuid) == digits) uuids.push_back(gpu.uuid);
    }
  }
  return uuids;
}

}  // namespace

std::optional<std::vector<std::string>> AskCuda(const std::string& library, double patience_s) {
  DriverChild child(
      "cuInit",
      [library](char, const DriverChild::Enter& enter) {
        std::vector<Uuid> uuids;
        // A first byte tells "none" from "unknown".
        std::string answer(1, ListUuids(library, enter, uuids) ? '1' : '0');
        for (const Uuid& uuid : uuids) answer.append(uuid.data(), uuid.size());
        return answer;
      },
      patience_s);
  const std::optional<std::string> answer = child.Ask('?');
  if (!answer || !answer->starts_with('1')) return std::nullopt;
  std::vector<std::string> digits(answer->size() / sizeof(Uuid));
  for (size_t i = 1; i < answer->size(); ++i) {
    digits[(i - 1) / sizeof(Uuid)] +=
        fmt::format("{:02x}", static_cast<unsigned char>((*answer)[i]));
  }
  return digits;
}

VisibleGpus ReadVisibleDevices(
    const char* value, const GpuSnapshot& seen,
    const std::function<std::optional<std::vector<std::string>>()>& ask) {
  VisibleGpus visible;
  if (value == nullptr) {
    for (const Gpu& gpu : seen.gpus) {
      if (!gpu.uuid.empty()) visible.uuids.push_back(gpu.uuid);
    }
    return visible;
  }
  visible.limited = true;
  visible.value = OneLine(value, 200);
  if (*value == '\0' || seen.gpus.empty()) return visible;  // no GPU is visible
  const std::optional<std::vector<std::string>> answer = ask();
  visible.no_driver = !answer;
  if (answer) visible.uuids = Matched(*answer, seen);
  return visible;
}

VisibleGpus VisibleHere(const GpuSnapshot& seen) {
  return ReadVisibleDevices(std::getenv("CUDA_VISIBLE_DEVICES"), seen,
                            [] { return AskCuda("libcuda.so.1"); });
}

}  // namespace muster
