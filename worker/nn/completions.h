// Runs actions on the host when the device has reached a point, such as reporting a loss after it
// was copied, or pushing a gradient. The host's thread runs them whenever it checks, or immediately
// if the device is the host.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "worker/backend/backend.h"

namespace muster {

// Throws Error(kDeadline) if the event is not done after `seconds`.
void AwaitDevice(Event& event, double seconds);

class Completions {
 public:
  explicit Completions(Backend& backend) : backend_(backend) {}

  // Calls `action` when everything queued on `queue` so far is done: now, or in a later call of
  // Then, RunDone or RunAll. Actions are called in order. They must not add further actions.
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

  // Calls the actions whose work is done.
  void RunDone();
  // Waits for all actions and calls them. Throws Error(kDeadline) if none completes for `seconds`.
  void RunAll(double seconds);
  // Discards the waiting actions. The device must have finished its work.
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
