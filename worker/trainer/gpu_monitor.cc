#include "worker/trainer/gpu_monitor.h"

#include <chrono>

namespace muster {

GpuMonitor::GpuMonitor(const std::string& pci_bus_id) {
  if (pci_bus_id.empty()) return;
  nvml_ = std::make_unique<const nvml::Library>();
  if (!nvml_->trouble().empty() ||
      nvml::Call(nvml_->api().handle_by_pci, pci_bus_id.c_str(), &device_) != nvml::kSuccess) {
    return;
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { Work(stop); });
}

nvml::Sensors GpuMonitor::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

void GpuMonitor::Work(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const nvml::Sensors read = nvml::ReadSensors(nvml_->api(), device_);
    std::unique_lock lock(mutex_);
    latest_ = read;
    stopped_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
  }
}

}  // namespace muster
