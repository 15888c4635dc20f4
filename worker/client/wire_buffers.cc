#include "worker/client/wire_buffers.h"

#include <unistd.h>

namespace muster {

WireBuffers::WireBuffers(size_t values, int wake_fd) : wake_fd_(wake_fd) {
  for (size_t i = 0; i < kCount; ++i) buffers_.emplace_back(*this, values);
}

WireBuffers::Buffer* WireBuffers::TakeFree() {
  for (Buffer& buffer : buffers_) {
    if (!buffer.taken_.exchange(true)) return &buffer;
  }
  return nullptr;
}

WireBuffers::Buffer* WireBuffers::Take() {
  if (Buffer* const buffer = TakeFree()) return buffer;
  // Whoever gives one back after this sees it; whoever did so before it is seen by the second look.
  wanted_ = true;
  return TakeFree();
}

void WireBuffers::Buffer::GiveBack() {
  taken_ = false;
  if (!owner_.wanted_.exchange(false)) return;
  const uint64_t one = 1;
  (void)!::write(owner_.wake_fd_, &one, sizeof one);
}

}  // namespace muster
