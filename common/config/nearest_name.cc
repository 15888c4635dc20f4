#include "common/config/nearest_name.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "common/base/join.h"

namespace muster {
namespace {

// Damerau and Levenshtein's distance, in half edits: swapped neighbours, the most common slip, cost
// less than another letter.
size_t Distance(const std::string& a, const std::string& b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = 2 * (i + j);
        continue;
      }
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 2, d[i][j - 1] + 2, d[i - 1][j - 1] + (same ? 0 : 2)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string NearestName(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(4, name.size());  // half of the name may be wrong
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string SuggestName(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string nearest = NearestName(name, candidates);
  const std::string all = fmt::format("expected one of {}", Join(candidates, ", "));
  return nearest.empty() ? all : fmt::format("did you mean \"{}\"? ({})", nearest, all);
}

}  // namespace muster
