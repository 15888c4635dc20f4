#include "common/gpu/nvml.h"

#include <fmt/core.h>

#include "common/base/text.h"

namespace muster::nvml {
namespace {

constexpr unsigned kHottest = 200;      // degrees; higher readings are invalid
constexpr double kMostWatts = 100'000;  // higher readings are invalid

std::optional<double> Watts(Result (*read)(Device, unsigned*), Device device) {
  unsigned milliwatts = 0;
  if (Call(read, device, &milliwatts) != kSuccess || milliwatts * 1e-3 > kMostWatts) {
    return std::nullopt;
  }
  return milliwatts * 1e-3;
}

}  // namespace

std::string ErrorOf(const Api& api, Result result) {
  const char* const text = api.error_string != nullptr ? api.error_string(result) : nullptr;
  return text != nullptr ? ValidUtf8(text) : fmt::format("NVML error {}", result);
}

Library::Library(const std::string& name)
    : library_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)), api_{library_.get()} {
  if (!library_) {
    trouble_ = fmt::format("no NVIDIA driver was found here ({})", ::dlerror());
    return;
  }
  const Result result = Call(api_.init);
  if (result != kSuccess) {
    trouble_ = "the NVIDIA driver does not answer: " + ErrorOf(api_, result);
  }
}

Library::~Library() {
  if (trouble_.empty()) (void)Call(api_.shutdown);
}

Sensors ReadSensors(const Api& api, Device device) {
  Sensors sensors;
  Utilization utilization{};
  if (Call(api.utilization, device, &utilization) == kSuccess && utilization.gpu <= 100) {
    sensors.utilization = utilization.gpu;
  }
  unsigned degrees = 0;
  if (Call(api.temperature, device, kTemperatureGpu, &degrees) == kSuccess && degrees <= kHottest) {
    sensors.temperature = degrees;
  }
  sensors.power_w = Watts(api.power, device);
  MemoryV2 memory{.version = kMemoryV2};
  if (Call(api.memory_v2, device, &memory) == kSuccess && memory.used <= memory.total) {
    sensors.used_bytes = memory.used;
  }
  return sensors;
}

Limits ReadLimits(const Api& api, Device device) {
  Limits limits{.power_w = Watts(api.power_limit, device)};
  unsigned degrees = 0;
  if (Call(api.temperature_threshold, device, kThresholdSlowdown, &degrees) == kSuccess &&
      degrees > 0 && degrees <= kHottest) {
    limits.slowdown_temperature = degrees;
  }
  return limits;
}

}  // namespace muster::nvml
