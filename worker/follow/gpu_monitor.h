// Reads the sensors of this worker's GPU once per second, on a thread of its own. A call of a
// hanging driver does not return, so nothing waits for that thread: it is detached.
#pragma once

#include <memory>
#include <string>

#include "common/gpu/nvml.h"
#include "proto/wire.pb.h"

namespace muster {

class GpuMonitor {
 public:
  // `gpu` is its address, "0000:3b:00.0", or its UUID. If it is empty there is no thread, and all
  // readings are empty, as they are without NVML.
  explicit GpuMonitor(std::string gpu);
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;

  nvml::Sensors latest() const;
  // Adds the sensors, without the memory, to the report of a step.
  void Put(wire::StepTimes& times) const;

 private:
  struct Shared;

  const std::shared_ptr<Shared> shared_;  // with the thread
};

}  // namespace muster
