// Reads the sensors of this worker's GPU once per second, on a thread of its own, because a reading
// may take the driver milliseconds.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/gpu/nvml.h"

namespace muster {

class GpuMonitor {
 public:
  // `pci_bus_id` is the GPU's address, "0000:3b:00.0". If it is empty, or without NVML, there is no
  // thread and all readings are empty.
  explicit GpuMonitor(const std::string& pci_bus_id);
  GpuMonitor(const GpuMonitor&) = delete;

  nvml::Sensors latest() const;

 private:
  void Work(const std::stop_token& stop);

  std::unique_ptr<const nvml::Library> nvml_;
  nvml::Device device_ = nullptr;
  mutable std::mutex mutex_;  // guards latest_
  std::condition_variable_any stopped_;
  nvml::Sensors latest_;
  std::jthread thread_;  // last: joined first
};

}  // namespace muster
