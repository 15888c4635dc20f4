// A worker's report of each step (StepTimes): how long each stage took, and the device's memory.
//
// Owner and thread: the trainer's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "proto/wire.pb.h"

namespace muster {

class StepReport {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A step was ordered; none of its weights have arrived.
  void BeginStep() { first_weights_seen_ = false; }
  // Counts the time since `begin` as waiting for the step's order or for weights. `handed_over`:
  // when the latest message was handed over.
  void BookWait(Time begin, Time handed_over);
  void SawWeights() { first_weights_seen_ = true; }
  void BookInput(Time begin);  // counts the time since `begin`

  // The passes of a slice begin. Waits and pushes within them do not count as compute time.
  void BeginPasses() { waited_ms_ = pushed_ms_ = 0; }
  void AddWaited(Time begin);
  void AddPushed(Time begin);
  // The passes restart: counts all time since `begin` as waiting.
  void BeginPassesAgain(Time begin);
  // Counts the remaining time since `begin` as compute time.
  void BookCompute(Time begin);

  // Bytes of device memory that this process holds from this step on; 0: unknown, or no device
  // memory.
  void SetDeviceMemory(size_t bytes) { device_bytes_ = bytes; }

  // Returns the report of a step and begins the next one.
  wire::StepTimes Take(int64_t step);
  void Drop() { times_.Clear(); }

 private:
  wire::StepTimes times_;
  size_t device_bytes_ = 0;
  bool first_weights_seen_ = false;
  // Summed over one slice's passes.
  double waited_ms_ = 0, pushed_ms_ = 0;
};

}  // namespace muster
