// The names of checkpoints: step-00000120-g2 is W(120) saved by the run's second server.
// "-evaluated" means that a due evaluation of it is finished.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace muster {

// Ordered from old to new. Checkpoints of a later server are newer, whatever their step, because it
// may have resumed from an older one. File times are not used, because clocks may be set.
struct CheckpointName {
  int64_t generation = 0;
  int64_t step = 0;
  bool evaluated = false;

  std::string Text() const;
  // NOLINTNEXTLINE(modernize-use-nullptr): for the compiler-generated comparison with 0
  auto operator<=>(const CheckpointName&) const = default;
};

// Empty if it is not the name of a complete checkpoint.
std::optional<CheckpointName> ParseCheckpointName(const std::string& text);

}  // namespace muster
