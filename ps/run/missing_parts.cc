#include "ps/run/missing_parts.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/text.h"

namespace muster {
namespace {

constexpr size_t kMostParts = 3, kMostNames = 3;

std::vector<std::string> NamesOf(std::span<const uint32_t> missing, const VariableLayout& layout,
                                 std::span<const Chunk> chunks) {
  std::vector<std::string> names;
  for (const Variable& variable : layout.variables()) {
    const bool lacks = std::ranges::any_of(missing, [&](uint32_t c) {
      return variable.offset < chunks[c].end && variable.offset + variable.count > chunks[c].begin;
    });
    if (lacks) names.push_back(variable.name);
  }
  return names;
}

std::string VariablesText(std::vector<std::string> names, size_t all) {
  if (names.size() == all && all > 1) return fmt::format("all {} variables", all);
  const size_t more = names.size() - std::min(names.size(), kMostNames);
  names.resize(names.size() - more);
  if (more == 0) return Join(names, ", ");
  return fmt::format("{} and {} more variable{}", Join(names, ", "), more, more == 1 ? "" : "s");
}

}  // namespace

std::string SlicesText(const Range& slices) {
  if (slices.size() == 1) return fmt::format("slice {}", slices.begin);
  return fmt::format("slices {} to {}", slices.begin, slices.end - 1);
}

std::string MissingText(std::span<const MissingPart> parts, const VariableLayout& layout,
                        std::span<const Chunk> chunks) {
  std::vector<std::string> texts;
  size_t count = 0;
  for (const MissingPart& part : parts) {
    const std::vector<std::string> names = NamesOf(part.chunks, layout, chunks);
    if (names.empty() || ++count > kMostParts) continue;
    texts.push_back(fmt::format("{} of {} (rank {})", SlicesText(part.slices),
                                VariablesText(names, layout.variables().size()), part.rank));
  }
  if (count > kMostParts) texts.push_back(fmt::format("and {} more", count - kMostParts));
  return Join(texts, "; ");
}

}  // namespace muster
