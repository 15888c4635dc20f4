#include "worker/client/wire_buffers.h"

namespace muster {

WireBuffers::WireBuffers(size_t values, const EventFd& bell) : bell_(bell) {
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
  // A buffer returned after this rings the bell; one returned before is found by the second search.
  wanted_ = true;
  return TakeFree();
}

void WireBuffers::Buffer::GiveBack() {
  taken_ = false;
  if (owner_.wanted_.exchange(false)) owner_.bell_.Ring();
}

Release WireBuffers::Buffer::GivesBack(Release next) {
  next_ = next;
  const auto call = [](void* hint) {
    Buffer& buffer = *static_cast<Buffer*>(hint);
    const Release after = buffer.next_;  // the next user of the buffer overwrites next_
    buffer.GiveBack();
    if (after.call != nullptr) after.call(after.hint);
  };
  return {call, this};
}

}  // namespace muster
