#include "worker/nn/completions.h"

#include "common/base/error.h"

namespace muster {

void AwaitDevice(Event& event, double seconds) {
  if (event.IsDone() || event.Wait(seconds)) return;
  throw Error(ExitCode::kDeadline,
              "this worker's device did not finish its work within {} s; check the system log "
              "(dmesg) for device errors",
              seconds);
}

void Completions::RunDone() {
  while (!waiting_.empty() && waiting_.front().event->IsDone()) RunFirst();
}

void Completions::RunAll(double seconds) {
  while (!waiting_.empty()) {
    AwaitDevice(*waiting_.front().event, seconds);
    RunFirst();
  }
}

std::unique_ptr<Event> Completions::TakeEvent() {
  if (free_.empty()) return backend_.MakeEvent();
  std::unique_ptr<Event> event = std::move(free_.back());
  free_.pop_back();
  return event;
}

void Completions::RunFirst() {
  Waiting first = std::move(waiting_.front());
  waiting_.pop_front();
  free_.push_back(std::move(first.event));
  first.action();
}

}  // namespace muster
