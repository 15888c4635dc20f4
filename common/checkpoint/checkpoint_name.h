// The names of checkpoints: step-00000120-g2 is what the run's second server kept of W(120), with
// "-evaluated" where an evaluation of it was due and is over.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace muster {

// Ordered by the age of what they name: a later server's are newer, whatever their step, since it
// may have gone on from an older one. Never by time: clocks are set.
struct CheckpointName {
  int64_t generation = 0;
  int64_t step = 0;
  bool evaluated = false;

  std::string Text() const;
  // NOLINTNEXTLINE(modernize-use-nullptr): of the compiler's own comparison with 0
  auto operator<=>(const CheckpointName&) const = default;
};

// Nothing if it is not the name of a checkpoint, as that of one that is being written.
std::optional<CheckpointName> ParseCheckpointName(const std::string& text);

}  // namespace muster
