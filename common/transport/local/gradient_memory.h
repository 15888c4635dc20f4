// What the server shares with one worker, at the server's end: the gradient buffers in which the
// worker puts its gradients, which only the worker can write.
#pragma once

#include <memory>

#include "common/base/shared_memory.h"
#include "common/link/link.h"
#include "common/plan/gradient_layout.h"
#include "proto/wire.pb.h"

namespace muster {

class GradientMemory {
 public:
  // Throws Error(kFailure) if there is no memory to be had.
  explicit GradientMemory(GradientLayout layout)
      : layout_(std::move(layout)),
        gradient_buffers_(std::make_shared<SharedMemory>(
            SharedMemory::Create("muster-gradients", layout_.bytes(), SharedMemory::Access::kRead,
                                 layout_.used_bytes()))) {}

  int fd() const { return gradient_buffers_->fd(); }

  // The gradient that a message is about: it lies in the gradient buffers. Without floats if it is
  // about none, or about an arena that this worker does not have. It shares the ownership of the
  // gradient buffers, which so outlive their worker until the last chunk is added.
  Payload Find(const wire::WorkerMessage& message) const;

 private:
  GradientLayout layout_;
  std::shared_ptr<SharedMemory> gradient_buffers_;
};

}  // namespace muster
