// The server's side of one worker's gradient buffers, which only the worker can write.
#pragma once

#include <memory>

#include "common/base/shared_memory.h"
#include "common/link/link.h"
#include "common/plan/gradient_layout.h"
#include "proto/wire.pb.h"

namespace muster {

class GradientMemory {
 public:
  // Throws Error(kFailure) if memory is unavailable.
  explicit GradientMemory(GradientLayout layout)
      : layout_(std::move(layout)),
        gradient_buffers_(std::make_shared<SharedMemory>(
            SharedMemory::Create("muster-gradients", layout_.bytes(), SharedMemory::Access::kRead,
                                 layout_.used_bytes()))) {}

  int fd() const { return gradient_buffers_->fd(); }

  // Returns the gradient in the gradient buffers that `message` describes. Empty if the message
  // describes none, or if the buffer does not belong to this worker. The payload shares ownership
  // of the buffers, so that they survive the worker until the last chunk has been added.
  Payload Find(const wire::WorkerMessage& message) const;

 private:
  GradientLayout layout_;
  std::shared_ptr<SharedMemory> gradient_buffers_;
};

}  // namespace muster
