// What the server shares with one worker, at the server's end: the slots in which the worker puts
// its gradients, which only the worker can write.
#pragma once

#include <memory>

#include "common/base/shared_memory.h"
#include "common/link/link.h"
#include "common/plan/slot_layout.h"
#include "proto/wire.pb.h"

namespace muster {

class GradientMemory {
 public:
  // Throws Error(kFailure) if there is no memory to be had.
  explicit GradientMemory(SlotLayout layout)
      : layout_(std::move(layout)),
        slots_(std::make_shared<SharedMemory>(
            SharedMemory::Create("muster-slot", layout_.bytes(), SharedMemory::Access::kRead))) {}

  int fd() const { return slots_->fd(); }

  // The gradient that a message is about: it lies in the slots. Without floats if it is about none,
  // or about a part that this worker does not have. It shares the ownership of the slots, which so
  // outlive their worker until the last chunk is added.
  Payload Find(const wire::WorkerMessage& message) const;

 private:
  SlotLayout layout_;
  std::shared_ptr<SharedMemory> slots_;
};

}  // namespace muster
