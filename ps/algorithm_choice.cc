#include "ps/algorithm_choice.h"

#include <fmt/core.h>

#include "common/base/log.h"
#include "common/link/protocol.h"

namespace muster {

// Without a choice: a wish to make it.
void AlgorithmChoice::Send(uint32_t rank) {
  wire::ServerMessage message = members_.NewMessage();
  wire::Tuning& tuning = *message.mutable_tuning();
  if (choice_) tuning.set_choice(*choice_);
  members_.Send(rank, message);
}

void AlgorithmChoice::OnWelcomed(uint32_t rank) {
  if (!Tunes(rank)) return;
  if (!choice_ && !tuner_) {
    tuner_ = rank;
    LogInfo("{} times algorithms (worker.autotune); the others wait", members_.Name(rank));
  }
  if (choice_ || tuner_ == rank) Send(rank);
}

std::string AlgorithmChoice::OnTuning(uint32_t rank, const wire::Tuning& tuning) {
  if (tuner_ != rank) return "a choice of algorithms that it was not asked for";
  if (!tuning.has_choice() || tuning.choice().size() > kMostTuningBytes) {
    return fmt::format("a choice of algorithms of {} bytes, of at most {}", tuning.choice().size(),
                       kMostTuningBytes);
  }
  LogInfo("{} has chosen the algorithms ({} bytes): all compute with these", members_.Name(rank),
          tuning.choice().size());
  choice_ = tuning.choice();
  tuner_.reset();
  for (const uint32_t other : members_.Seated()) {
    if (Tunes(other)) Send(other);
  }
  return "";
}

void AlgorithmChoice::OnLost(uint32_t rank) {
  if (tuner_ != rank) return;
  tuner_.reset();
  for (const uint32_t other : members_.Seated()) OnWelcomed(other);
}

}  // namespace muster
