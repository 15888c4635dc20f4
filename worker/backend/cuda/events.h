// Positions in the GPU's queues.
#pragma once

#include <cstdint>

#include "common/base/error.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/await.h"
#include "worker/backend/cuda/handles.h"
#include "worker/backend/cuda/host_copies.h"

namespace muster::cuda {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(HostCopies& copies) : copies_(copies), event_(MakeEventHandle()) {}

  void Record(cudaStream_t stream, bool copies_out) {
    Check(cudaEventRecord(event_.get(), stream), "record an event");
    recorded_ = true;
    landed_ = copies_out ? copies_.copies_out() : 0;
  }
  // get() requires recorded().
  bool recorded() const { return recorded_; }
  cudaEvent_t get() const { return event_.get(); }

  bool IsDone() override { return !recorded_ || Landed(HasHappened(event_.get())); }
  bool Wait(double seconds) override {
    return !recorded_ || Landed(AwaitEvent(event_.get(), seconds));
  }

 private:
  // Moves the data copied out before the event to its destination.
  bool Landed(bool happened) {
    if (happened) copies_.Land(landed_);
    return happened;
  }

  HostCopies& copies_;
  const EventHandle event_;
  bool recorded_ = false;
  int64_t landed_ = 0;
};

}  // namespace muster::cuda
