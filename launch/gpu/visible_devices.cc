#include "launch/gpu/visible_devices.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>

#include "common/base/error.h"
#include "common/base/utf8.h"
#include "launch/gpu/child_task.h"
#include "launch/gpu/cuda_driver.h"
#include "launch/gpu/process_info.h"

namespace muster {
namespace {

constexpr double kDriverSeconds = 60;  // a driver that nobody has used yet takes some of them

// Of "GPU-1b2c…" and "MIG-1b2c…" what follows the kind, in small letters.
std::string Digits(const std::string& uuid) {
  std::string digits = uuid.starts_with("GPU-") || uuid.starts_with("MIG-") ? uuid.substr(4) : uuid;
  for (char& c : digits) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return digits;
}

// The UUIDs of those that the driver names. What NVML does not see nobody can lock.
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

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string word = text.substr(at, comma - at);
    const size_t first = word.find_first_not_of(" \t");
    words.push_back(first == std::string::npos
                        ? ""
                        : word.substr(first, word.find_last_not_of(" \t") - first + 1));
    at = comma + 1;
  }
  return words;
}

// The one card that this word of the list means, or null, which ends the list.
const Gpu* CardOfWord(const std::string& word, bool nvml_order, const GpuSnapshot& seen) {
  const bool number =
      !word.empty() && word.size() < 6 && word.find_first_not_of("0123456789") == std::string::npos;
  if (number && !nvml_order) {
    throw Error(ExitCode::kUsage,
                "CUDA_VISIBLE_DEVICES: \"{}\" counts in CUDA's order of the cards, and the CUDA "
                "driver cannot be asked for it: give UUIDs (`muster gpus` shows them), or set "
                "CUDA_DEVICE_ORDER=PCI_BUS_ID",
                word);
  }
  const Gpu* found = nullptr;
  for (const Gpu& gpu : seen.gpus) {
    const bool means = number ? gpu.index == word
                              : word.size() > 4 && word.substr(0, 4) == gpu.uuid.substr(0, 4) &&
                                    Digits(gpu.uuid).starts_with(Digits(word));
    if (!means) continue;
    if (found != nullptr) return nullptr;  // it may mean two
    found = &gpu;
  }
  return found;
}

std::vector<std::string> WorkedOutHere(const std::string& value, bool nvml_order,
                                       const GpuSnapshot& seen) {
  std::vector<std::string> uuids;
  for (const std::string& word : Split(value)) {
    const Gpu* const gpu = CardOfWord(word, nvml_order, seen);
    if (gpu == nullptr) return uuids;
    // CUDA takes a list with a card in it twice for a mistake, and then offers none.
    if (std::ranges::find(uuids, gpu->uuid) != uuids.end()) return {};
    uuids.push_back(gpu->uuid);
  }
  return uuids;
}

}  // namespace

std::vector<std::string> AskDriver(const std::string& library) {
  const CudaDriver driver(library);
  std::vector<std::string> uuids;
  uuids.reserve(static_cast<size_t>(driver.count()));
  for (int i = 0; i < driver.count(); ++i) uuids.push_back(driver.UuidOf(i));
  return uuids;
}

VisibleCards ReadVisibleDevices(const char* value, const char* device_order,
                                const GpuSnapshot& seen,
                                const std::function<std::vector<std::string>()>& ask) {
  VisibleCards visible;
  if (value == nullptr) {
    for (const Gpu& gpu : seen.gpus) {
      if (!gpu.uuid.empty()) visible.uuids.push_back(gpu.uuid);
    }
    return visible;
  }
  visible.limited = true;
  visible.value = OneLine(value, 200);
  if (*value == '\0' || seen.gpus.empty()) return visible;  // none
  std::optional<std::vector<std::string>> answered;
  try {
    answered = ask();
  } catch (const Error&) {
    const bool nvml_order = device_order != nullptr && std::string(device_order) == "PCI_BUS_ID";
    visible.uuids = WorkedOutHere(value, nvml_order, seen);
  }
  if (answered) visible.uuids = Matched(*answered, seen);
  return visible;
}

VisibleCards VisibleHere(const GpuSnapshot& seen) {
  return ReadVisibleDevices(
      std::getenv("CUDA_VISIBLE_DEVICES"), std::getenv("CUDA_DEVICE_ORDER"), seen, [] {
        return RunInChild(
            "the CUDA driver", [] { return AskDriver(CudaDriver::kLibrary); }, kDriverSeconds);
      });
}

}  // namespace muster
