// What waits to be sent to one peer, in the order in which it leaves: control messages first, as
// they came, then tensors, the most urgent first. Whoever adds a tensor says how urgent it is.
//
// What sends in the order in which it is given messages, as libzmq does, is given few tensors at a
// time (SendWindow). The others wait here, where what is more urgent can still overtake them.
//
// Owner: one end of a connection. Threads: one; but what was sent may be given back by any.
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

// How much of one connection's tensors ZeroMQ has been given and has not sent yet. What comes after
// waits outside of it, where what is more urgent can still overtake it: a message that says to
// stop, a lower layer's chunk. One thread takes; any thread gives back.
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

// Item: a message, and where its tensor lies.
template <typename Item>
class Outbox {
 public:
  // `room` is called, by any thread, when tensors that had to wait may go: Send is due.
  explicit Outbox(Release room) : window_(std::make_shared<SendWindow>(room)) {}

  // `bytes`: of the message, on the wire.
  void AddControl(size_t bytes, Item message) {
    control_.push_back({bytes, std::move(message)});
    control_bytes_ += bytes;
  }
  // `bytes`: of the tensor, on the wire.
  void AddTensor(const Urgency& urgency, size_t bytes, Item message) {
    tensors_.emplace(urgency, Waiting{bytes, std::move(message)});
  }

  bool empty() const { return control_.empty() && tensors_.empty(); }
  size_t tensors() const { return tensors_.size(); }       // that wait
  size_t control_bytes() const { return control_bytes_; }  // that wait

  // Calls bool hand_over(Item&, Release sent) for what may go now. `sent` is to be called once, by
  // any thread: when the tensor has left, or will not. False: this one stays, and so does all that
  // comes after it.
  template <typename HandOver>
  void Send(const HandOver& hand_over);

  void DropTensors() { tensors_.clear(); }
  // Those of older steps.
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
  std::multimap<Urgency, Waiting> tensors_;  // those of one urgency as they came
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
