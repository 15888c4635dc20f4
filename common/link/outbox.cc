#include "common/link/outbox.h"

namespace muster {

bool SendWindow::Fits(size_t bytes) const {
  return messages_ < kMessages || bytes_ + bytes <= kBytes;
}

bool SendWindow::Take(size_t bytes) {
  if (!Fits(bytes)) {
    // A GiveBack after this line sees `wanted_`. The second check notices an earlier one.
    wanted_ = true;
    if (!Fits(bytes)) return false;
  }
  ++messages_;
  bytes_ += bytes;
  return true;
}

void SendWindow::GiveBack(size_t bytes) {
  bytes_ -= bytes;
  --messages_;
  if (wanted_.exchange(false)) room_.call(room_.hint);
}

Release SendWindow::GivesBack(size_t bytes, Release next) {
  struct Sent {
    std::shared_ptr<SendWindow> window;
    size_t bytes;
    Release next;
  };
  const auto call = [](void* hint) {
    const std::unique_ptr<Sent> sent(static_cast<Sent*>(hint));
    if (sent->next.call != nullptr) sent->next.call(sent->next.hint);
    sent->window->GiveBack(sent->bytes);
  };
  return {call, new Sent{shared_from_this(), bytes, next}};
}

}  // namespace muster
