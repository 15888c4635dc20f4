#include "worker/follow/gpu_monitor.h"

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

  void Work(const std::string& gpu) {
    const nvml::Library library;
    nvml::Device device = nullptr;
    if (!library.trouble().empty() ||
        nvml::Call(gpu.find('-') == std::string::npos ? library.api().handle_by_pci
                                                      : library.api().handle_by_uuid,
                   gpu.c_str(), &device) != nvml::kSuccess) {
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

GpuMonitor::GpuMonitor(std::string gpu) : shared_(std::make_shared<Shared>()) {
  if (gpu.empty()) return;
  try {
    std::thread([shared = shared_, id = std::move(gpu)] { shared->Work(id); }).detach();
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

void GpuMonitor::Put(wire::StepTimes& times) const {
  const nvml::Sensors gpu = latest();
  if (gpu.utilization) times.set_gpu_utilization(*gpu.utilization);
  if (gpu.temperature) times.set_gpu_temperature(*gpu.temperature);
  if (gpu.power_w) times.set_gpu_power_w(*gpu.power_w);
}

}  // namespace muster
