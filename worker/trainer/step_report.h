// A worker's report of each step (StepTimes): how long each stage took, and the state of the GPU.
//
// Owned by the trainer and used on its thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "proto/wire.pb.h"
#include "worker/follow/gpu_monitor.h"

namespace muster {

class StepReport {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit StepReport(const std::string& pci_bus_id) : gpu_(pci_bus_id) {}

  // Called when a step has been ordered and none of its weights have arrived.
  void BeginStep() { first_weights_seen_ = false; }
  // Counts the time since `begin` as waiting for the step's order or for weights. `handed_over` is
  // the time at which the latest message was handed over.
  void BookWait(Time begin, Time handed_over);
  void SawWeights() { first_weights_seen_ = true; }
  void BookInput(Time begin);  // counts the time since `begin` as input

  // Called when the passes of a slice begin. Waits and pushes within them do not count as compute
  // time.
  void BeginPasses() { waited_ms_ = pushed_ms_ = 0; }
  void AddWaited(Time begin);
  void AddPushed(Time begin);
  // Called when the passes restart. Counts all time since `begin` as waiting.
  void BeginPassesAgain(Time begin);
  // Counts the remaining time since `begin` as compute time.
  void BookCompute(Time begin);

  // Sets the bytes of device memory that this process holds from this step on. 0 means unknown, or
  // no device memory.
  void SetDeviceMemory(size_t bytes) { device_bytes_ = bytes; }

  // Returns the report of a step and begins the next one.
  wire::StepTimes Take(int64_t step);
  void Drop() { times_.Clear(); }

 private:
  const GpuMonitor gpu_;
  wire::StepTimes times_;
  size_t device_bytes_ = 0;
  bool first_weights_seen_ = false;
  // Summed over one slice's passes.
  double waited_ms_ = 0, pushed_ms_ = 0;
};

}  // namespace muster
