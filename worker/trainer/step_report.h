// A worker's report of each step (StepTimes): where its time went, and the device's memory.
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

  // A step has been ordered: none of its weights are there.
  void BeginStep() { first_weights_seen_ = false; }
  // The time since `begin` was waiting for the step's order, or for weights. `handed_over`: when
  // the last message so far was.
  void BookWait(Time begin, Time handed_over);
  void SawWeights() { first_weights_seen_ = true; }
  void BookInput(Time begin);  // the time since `begin`

  // The passes of a slice begin. What they wait and push is not compute time.
  void BeginPasses() { waited_ms_ = pushed_ms_ = 0; }
  void AddWaited(Time begin);
  void AddPushed(Time begin);
  // The passes begin again. The time since `begin` counts as waiting.
  void BeginPassesAgain(Time begin);
  // Counts the rest of the time since `begin` as computing.
  void BookCompute(Time begin);

  // Bytes of the device's memory that this process holds from this step on; 0: none, or a device
  // that does not count.
  void SetDeviceMemory(size_t bytes) { device_bytes_ = bytes; }

  // Ends the report of a step, and begins the next one.
  wire::StepTimes Take(int64_t step);
  void Drop() { times_.Clear(); }

 private:
  wire::StepTimes times_;
  size_t device_bytes_ = 0;
  bool first_weights_seen_ = false;
  // In all hooks of one slice's passes.
  double waited_ms_ = 0, pushed_ms_ = 0;
};

}  // namespace muster
