#include "ps/update/find_nonfinite.h"

#include <fmt/core.h>

#include <cmath>

#include "ps/update/unsigned_nan.h"

namespace muster {
namespace {

constexpr float kLargestHalf = 65504;

// "conv1/weights[12]"
std::string NameOf(const Suspect& suspect, size_t at) {
  const Variable& variable = suspect.variables.layout().VariableAt(at);
  return fmt::format("{}[{}]", variable.name, at - variable.offset);
}

float ValueAt(const ChunkGradient& gradient, size_t part, size_t i) {
  if (gradient.type == wire::FP32) return static_cast<const float*>(gradient.parts[part])[i];
  float value;
  Widen(gradient.type, {static_cast<const uint16_t*>(gradient.parts[part]) + i, 1}, &value);
  return value;
}

// Finds nothing in the second phase of a two-phase step: the parts have been freed, and all were
// finite.
std::optional<Nonfinite> InParts(const Suspect& suspect) {
  const ChunkGradient gradient = suspect.gradients.PartsOf(suspect.chunk);
  for (size_t part = 0; part < gradient.parts.size(); ++part) {
    if (gradient.parts[part] == nullptr) continue;
    for (size_t i = 0; i < suspect.range.floats(); ++i) {
      const float value = ValueAt(gradient, part, i);
      if (std::isfinite(value)) continue;
      return Nonfinite{fmt::format("the gradient of {} is {}",
                                   NameOf(suspect, suspect.range.begin + i), UnsignedNan(value)),
                       suspect.gradients.parts(suspect.chunk)[part].rank};
    }
  }
  return std::nullopt;
}

std::optional<size_t> In(std::span<const float> buffer, const Chunk& range) {
  for (size_t at = range.begin; at < range.end && !buffer.empty(); ++at) {
    if (!std::isfinite(buffer[at])) return at;
  }
  return std::nullopt;
}

std::string InNextState(const Suspect& suspect) {
  const Variables& variables = suspect.variables;
  const std::span<const float> next = variables.Weights(suspect.step + 1);
  if (const auto at = In(next, suspect.range)) {
    return fmt::format("the update set {} to {}, although the gradients of all workers are finite",
                       NameOf(suspect, *at), UnsignedNan(next[*at]));
  }
  for (size_t at = suspect.range.begin; at < suspect.range.end; ++at) {
    if (variables.wire_type() != wire::FP16 || std::abs(next[at]) <= kLargestHalf) continue;
    return fmt::format("the update set {} to {}, above the maximum {:g} of cluster.wire_dtype FP16",
                       NameOf(suspect, at), next[at], kLargestHalf);
  }
  // Weights can be finite although a second moment is infinite: dividing by √∞ gives 0.
  for (size_t i = 0; i < variables.state_arenas(); ++i) {
    const std::span<const float> state = variables.State(i, variables.updates() + 1);
    if (const auto at = In(state, suspect.range)) {
      return fmt::format(
          "the optimizer's second moment of {} is {}, although the gradients of all workers are "
          "finite",
          NameOf(suspect, *at), UnsignedNan(state[*at]));
    }
  }
  return "";
}

}  // namespace

Nonfinite FindNonfinite(const Suspect& suspect) {
  if (const auto found = InParts(suspect)) return *found;
  if (const auto at = In(suspect.averaged, suspect.range)) {
    return {fmt::format("the sum of the gradients of {} is {}, although those of all workers are "
                        "finite",
                        NameOf(suspect, *at), UnsignedNan(suspect.averaged[*at])),
            std::nullopt};
  }
  if (suspect.averaged.empty()) {
    if (std::string what = InNextState(suspect); !what.empty()) {
      return {std::move(what), std::nullopt};
    }
  }
  // The variable is clipped or frozen, so the weights do not show the bad value.
  return {
      fmt::format("the sum of the gradients of {} is not finite, although those of all workers are",
                  suspect.variables.layout().VariableAt(suspect.range.begin).name),
      std::nullopt};
}

}  // namespace muster
