#include "worker/backend/algorithm_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/base/error.h"

namespace muster {
namespace {

constexpr std::string_view kTitle = "muster algorithms ";
constexpr std::string_view kFormat = "1";
constexpr std::string_view kOn = "on", kEnd = "end";
constexpr size_t kEndBytes = 4 + 1 + 16 + 1;  // "end: …\n"

uint64_t ChecksumOfTable(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return ' ' <= c && c <= '~'; });
}

[[noreturn]] void Damaged(const std::string& why) {
  throw Error(ExitCode::kData, "the choice of algorithms (worker.autotune) is damaged: {}", why);
}

// The next line, without its end.
std::string_view TakeLine(std::string_view& rest) {
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) Damaged("it ends within a line");
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return line;
}

std::pair<std::string_view, std::string_view> Split(std::string_view line) {
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos || !IsPrintable(line)) {
    Damaged("expected lines of the form \"key: value\"");
  }
  return {line.substr(0, colon), line.substr(colon + 2)};
}

void RequireTitle(std::string_view title) {
  if (!title.starts_with(kTitle)) Damaged(fmt::format("it does not begin with \"{}\"", kTitle));
  title.remove_prefix(kTitle.size());
  if (title == kFormat) return;
  if (!IsPrintable(title)) Damaged("its format is no number");
  throw Error(ExitCode::kData,
              "the choice of algorithms (worker.autotune) is of format {}: expected {}; use the "
              "version of Muster that made it, or set worker.autotune=false",
              title.substr(0, 20), kFormat);
}

}  // namespace

std::string TextOf(const AlgorithmTable& table) {
  std::string text = fmt::format("{}{}\n{}: {}\n", kTitle, kFormat, kOn, table.on);
  for (const auto& [key, value] : table.chosen) {
    const std::string line = fmt::format("{}: {}\n", key, value);
    if (text.size() + line.size() + kEndBytes > AlgorithmTable::kMostBytes) break;
    text += line;
  }
  return text + fmt::format("{}: {:016x}\n", kEnd, ChecksumOfTable(text));
}

AlgorithmTable ParseAlgorithmTable(std::string_view text) {
  if (text.size() > AlgorithmTable::kMostBytes) {
    Damaged(
        fmt::format("it has {} bytes, and may have {}", text.size(), AlgorithmTable::kMostBytes));
  }
  std::string_view rest = text;
  RequireTitle(TakeLine(rest));
  AlgorithmTable table;
  const auto [on, arithmetic] = Split(TakeLine(rest));
  if (on != kOn) Damaged("it does not say what it is for");
  table.on = arithmetic;
  for (std::string_view last;;) {
    const size_t here = text.size() - rest.size();
    const auto [key, value] = Split(TakeLine(rest));
    if (key == kEnd) {
      if (value != fmt::format("{:016x}", ChecksumOfTable(text.substr(0, here)))) {
        Damaged("its checksum is wrong");
      }
      if (!rest.empty()) Damaged("there is more after its end");
      return table;
    }
    if (key <= last || key.empty()) Damaged("its keys are not in order");
    table.chosen.emplace_hint(table.chosen.end(), key, value);
    last = key;
  }
}

}  // namespace muster
