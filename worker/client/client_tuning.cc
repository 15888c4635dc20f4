// The choice of algorithms (worker.autotune).
#include <utility>

#include "worker/client/client.h"

namespace muster {

std::optional<std::string> Client::AwaitTuning() {
  std::unique_lock lock(mutex_);
  (void)channel_->Wait(lock, [this] { return !tunings_.empty() || error_ != nullptr || stopped_; });
  if (tunings_.empty()) {
    ThrowIfFailed();
    ThrowStopped();
  }
  wire::Tuning tuning = std::move(tunings_.front());
  tunings_.pop_front();
  if (!tuning.has_choice()) return std::nullopt;
  return std::move(*tuning.mutable_choice());
}

void Client::ReportTuning(std::string choice) {
  wire::WorkerMessage message = NewMessage();
  message.mutable_tuning()->set_choice(std::move(choice));
  Send(std::move(message));
}

}  // namespace muster
