// Messages that wait to be sent to one peer: control messages first, in order, then tensors by
// urgency. The caller sets a tensor's urgency.
//
// libzmq sends in the order in which it receives messages, so it is passed few tensors at a time
// (SendWindow). The others wait here, where more urgent ones can still overtake them.
//
// Owned by one end of a connection. Threads: one; but any thread may report that a tensor was sent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "common/link/link.h"

namespace muster {

// Counts how much of one connection's tensors libzmq holds and has not sent yet. The rest waits
// outside, where more urgent messages can still overtake it, such as a request to stop or a lower
// layer's chunk. One thread takes; any thread gives back.
class SendWindow : public std::enable_shared_from_this<SendWindow> {
 public:
  // Enough to keep ZeroMQ's thread busy while the next message is passed on (bench/sync_bench).
  static constexpr size_t kMessages = 3, kBytes = 6 << 20;

  // `room` is called, in the thread that gives back, when there is room again after a failed Take.
  explicit SendWindow(Release room) : room_(room) {}

  // True: `bytes` fit and are now counted.
  bool Take(size_t bytes);
  void GiveBack(size_t bytes);
  // Call the result after the taken `bytes` were sent: it calls `next`, then gives them back.
  Release GivesBack(size_t bytes, Release next = {});

 private:
  bool Fits(size_t bytes) const;

  const Release room_;
  std::atomic<size_t> messages_{0}, bytes_{0};
  std::atomic<bool> wanted_{false};
};

// Item: a message and a reference to its tensor.
template <typename Item>
class Outbox {
 public:
  // `room` is called, from any thread, when waiting tensors may be sent: call Send.
  explicit Outbox(Release room) : window_(std::make_shared<SendWindow>(room)) {}

  // `bytes`: the size of the message on the wire.
  void AddControl(size_t bytes, Item message) {
    control_.push_back({bytes, std::move(message)});
    control_bytes_ += bytes;
  }
  // `bytes`: the size of the tensor on the wire.
  void AddTensor(const Urgency& urgency, size_t bytes, Item message) {
    tensors_.emplace(urgency, Waiting{bytes, std::move(message)});
  }

  bool empty() const { return control_.empty() && tensors_.empty(); }
  size_t tensors() const { return tensors_.size(); }       // waiting
  size_t control_bytes() const { return control_bytes_; }  // waiting

  // Calls bool hand_over(Item&, Release sent) for everything that may go now. Call `sent` once,
  // from any thread, when the tensor has left or is dropped. False: this item and all after it
  // stay.
  template <typename HandOver>
  void Send(const HandOver& hand_over);

  void DropTensors() { tensors_.clear(); }
  // Drops tensors of older steps.
  void DropTensorsBefore(int64_t step) {
    tensors_.erase(tensors_.begin(), tensors_.lower_bound({.step = step}));
  }
  void Clear() {
    control_.clear();
    control_bytes_ = 0;
    tensors_.clear();
  }

 private:
  struct Waiting {
    size_t bytes;
    Item message;
  };

  std::deque<Waiting> control_;
  size_t control_bytes_ = 0;
  std::multimap<Urgency, Waiting> tensors_;  // in order of arrival for equal urgency
  std::shared_ptr<SendWindow> window_;
};

template <typename Item>
template <typename HandOver>
void Outbox<Item>::Send(const HandOver& hand_over) {
  for (; !control_.empty(); control_.pop_front()) {
    Waiting& next = control_.front();
    if (!hand_over(next.message, Release{})) return;
    control_bytes_ -= next.bytes;
  }
  for (; !tensors_.empty(); tensors_.erase(tensors_.begin())) {
    Waiting& next = tensors_.begin()->second;
    if (!window_->Take(next.bytes)) return;
    if (!hand_over(next.message, window_->GivesBack(next.bytes))) return;
  }
}

}  // namespace muster
