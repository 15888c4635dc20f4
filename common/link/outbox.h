// Holds the messages that wait to be sent to one peer: first control messages, in order, then
// tensors by urgency. The caller sets a tensor's urgency.
//
// libzmq sends messages in the order in which it receives them, so it gets only a few tensors at a
// time (SendWindow). The others wait here, where more urgent ones can still overtake them.
//
// Owned by one end of a connection. One thread makes all calls, but any thread may report that a
// tensor was sent.
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

// Limits how many tensors of one connection libzmq holds and has not sent yet. The rest wait
// outside, where more urgent messages can still overtake them, such as a request to stop or a lower
// layer's chunk. One thread calls Take; any thread may call GiveBack.
class SendWindow : public std::enable_shared_from_this<SendWindow> {
 public:
  // Enough to keep ZeroMQ's thread busy until it gets the next message (bench/sync_bench).
  static constexpr size_t kMessages = 3, kBytes = 6 << 20;

  // After a failed Take, `room` is called when there is room again, in the thread that calls
  // GiveBack.
  explicit SendWindow(Release room) : room_(room) {}

  // Returns true if `bytes` fit, and counts them.
  bool Take(size_t bytes);
  void GiveBack(size_t bytes);
  // Returns a callback to invoke when the taken `bytes` have been sent. It calls `next` and then
  // gives them back.
  Release GivesBack(size_t bytes, Release next = {});

 private:
  bool Fits(size_t bytes) const;

  const Release room_;
  std::atomic<size_t> messages_{0}, bytes_{0};
  std::atomic<bool> wanted_{false};
};

// Item is a message with a reference to its tensor.
template <typename Item>
class Outbox {
 public:
  // `room` is called from any thread when waiting tensors may be sent. The owner must then call
  // Send.
  explicit Outbox(Release room) : window_(std::make_shared<SendWindow>(room)) {}

  // `bytes` is the size of the message on the wire.
  void AddControl(size_t bytes, Item message) {
    control_.push_back({bytes, std::move(message)});
    control_bytes_ += bytes;
  }
  // `bytes` is the size of the tensor on the wire.
  void AddTensor(const Urgency& urgency, size_t bytes, Item message) {
    tensors_.emplace(urgency, Waiting{bytes, std::move(message)});
  }

  bool empty() const { return control_.empty() && tensors_.empty(); }
  size_t tensors() const { return tensors_.size(); }       // waiting
  size_t control_bytes() const { return control_bytes_; }  // waiting

  // Calls bool hand_over(Item&, Release sent) for each item that may be sent now. `sent` must be
  // called once, from any thread, when the tensor has been sent or dropped. If hand_over returns
  // false, this item and all later ones stay.
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
