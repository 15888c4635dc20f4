#include "common/gpu/nvml.h"

#include <fmt/core.h>

#include "common/base/text.h"

namespace muster::nvml {
namespace {

constexpr unsigned kHottest = 200;      // degrees; higher readings are invalid
constexpr double kMostWatts = 100'000;  // higher readings are invalid

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
  unsigned value = 0;
  if (Call(api.temperature, device, kTemperatureGpu, &value) == kSuccess && value <= kHottest) {
    sensors.temperature = value;
  }
  if (Call(api.temperature_threshold, device, kThresholdSlowdown, &value) == kSuccess &&
      value > 0 && value <= kHottest) {
    sensors.slowdown_temperature = value;
  }
  const auto watts = [&](Result (*read)(Device, unsigned*)) -> std::optional<double> {
    if (Call(read, device, &value) != kSuccess || value * 1e-3 > kMostWatts) return std::nullopt;
    return value * 1e-3;
  };
  sensors.power_w = watts(api.power);
  sensors.power_limit_w = watts(api.power_limit);
  return sensors;
}

}  // namespace muster::nvml
