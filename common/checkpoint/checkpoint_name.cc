#include "common/checkpoint/checkpoint_name.h"

#include <fmt/core.h>

#include <charconv>
#include <string_view>

namespace muster {
namespace {

constexpr int64_t kMost = int64_t{1} << 53;  // as in a checkpoint's state; room to count on

// Removes the number at the start of `text` and returns it.
std::optional<int64_t> TakeNumber(std::string_view& text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > kMost) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return value;
}

bool TakeWord(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

}  // namespace

std::string CheckpointName::Text() const {
  return fmt::format("step-{:08}-g{}{}", step, generation, evaluated ? "-evaluated" : "");
}

std::optional<CheckpointName> ParseCheckpointName(const std::string& text) {
  std::string_view rest = text;
  if (!TakeWord(rest, "step-")) return std::nullopt;
  const auto step = TakeNumber(rest);
  if (!step || !TakeWord(rest, "-g")) return std::nullopt;
  const auto generation = TakeNumber(rest);
  if (!generation) return std::nullopt;
  CheckpointName name{*generation, *step, TakeWord(rest, "-evaluated")};
  // Refuses other spellings of the same name.
  return name.Text() == text ? std::optional(name) : std::nullopt;
}

}  // namespace muster
