// How much of one connection's tensors ZeroMQ has been given and has not sent yet. What comes after
// waits outside of it, where what is more urgent can still overtake it: a message that says to
// stop, a lower layer's chunk.
//
// One thread takes; any thread gives back.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "common/link/link.h"

namespace muster {

class SendWindow : public std::enable_shared_from_this<SendWindow> {
 public:
  // As much as keeps ZeroMQ's thread busy while the next one is handed over (bench/sync_bench).
  static constexpr size_t kMessages = 3, kBytes = 6 << 20;

  // `room` is called, by whoever gives back, when there is room again after a Take that failed.
  explicit SendWindow(Release room) : room_(room) {}

  // True: `bytes` may go, and are counted.
  bool Take(size_t bytes);
  void GiveBack(size_t bytes);
  // To be called when `bytes`, which were taken, have been sent: calls `next`, then gives them
  // back.
  Release GivesBack(size_t bytes, Release next = {});

 private:
  bool Fits(size_t bytes) const;

  const Release room_;
  std::atomic<size_t> messages_{0}, bytes_{0};
  std::atomic<bool> wanted_{false};
};

}  // namespace muster
