#include "worker/trainer/gpu_monitor.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace muster {

struct GpuMonitor::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  nvml::Sensors latest;

  void Work(const std::string& pci_bus_id) {
    const nvml::Library library;
    nvml::Device device = nullptr;
    if (!library.trouble().empty() ||
        nvml::Call(library.api().handle_by_pci, pci_bus_id.c_str(), &device) != nvml::kSuccess) {
      return;
    }
    std::unique_lock lock(mutex);
    while (!stopped) {
      lock.unlock();
      const nvml::Sensors read = nvml::ReadSensors(library.api(), device);
      lock.lock();
      latest = read;
      changed.wait_for(lock, std::chrono::seconds(1), [this] { return stopped; });
    }
  }
};

GpuMonitor::GpuMonitor(std::string pci_bus_id) : shared_(std::make_shared<Shared>()) {
  if (pci_bus_id.empty()) return;
  try {
    std::thread([shared = shared_, id = std::move(pci_bus_id)] { shared->Work(id); }).detach();
  } catch (const std::system_error&) {  // too many threads: training does without the readings
  }
}

GpuMonitor::~GpuMonitor() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
}

nvml::Sensors GpuMonitor::latest() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->latest;
}

}  // namespace muster
