// The names of checkpoints: step-00000120-g2 is W(120) saved by the run's second server.
// "-evaluated" means that the evaluations due at this step are finished.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace muster {

// Names are ordered from old to new. Checkpoints of a later server are newer regardless of their
// step, because the server may have resumed from an older one. File times are not used, because
// clocks can be changed.
struct CheckpointName {
  int64_t generation = 0;
  int64_t step = 0;
  bool evaluated = false;

  std::string Text() const;
  // NOLINTNEXTLINE(modernize-use-nullptr): for the compiler-generated comparison with 0
  auto operator<=>(const CheckpointName&) const = default;
};

// Returns nothing if `text` is not the name of a complete checkpoint.
std::optional<CheckpointName> ParseCheckpointName(const std::string& text);

}  // namespace muster
