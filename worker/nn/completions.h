// What the host does once the device has come so far: report a loss that was copied out, push a
// gradient. The host's thread does it itself, whenever it looks; where the device is the host, at
// once.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "worker/backend/backend.h"

namespace muster {

// Throws Error(kDeadline) if the device has not come so far after `seconds`.
void AwaitDevice(Event& event, double seconds);

class Completions {
 public:
  explicit Completions(Backend& backend) : backend_(backend) {}

  // Calls `action` as soon as what `queue` was given so far is done: now, or in a later call of
  // Then, RunDone or RunAll. Actions are called in the order in which they were given. They may not
  // give further ones.
  template <typename Action>
  void Then(Queue queue, Action action) {
    std::unique_ptr<Event> event = TakeEvent();
    backend_.Record(queue, *event);
    RunDone();
    if (waiting_.empty() && event->IsDone()) {
      free_.push_back(std::move(event));
      action();
      return;
    }
    waiting_.push_back({std::move(event), std::move(action)});
  }

  // Calls those whose time has come.
  void RunDone();
  // Calls all, and waits for it. Throws Error(kDeadline) if nothing is done for `seconds`.
  void RunAll(double seconds);
  // Calls none of those that wait. The device is to have done its work.
  void Drop() { waiting_.clear(); }

 private:
  struct Waiting {
    std::unique_ptr<Event> event;
    std::function<void()> action;
  };

  std::unique_ptr<Event> TakeEvent();
  void RunFirst();

  Backend& backend_;
  std::deque<Waiting> waiting_;
  std::vector<std::unique_ptr<Event>> free_;
};

}  // namespace muster
