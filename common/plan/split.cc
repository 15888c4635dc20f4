#include "common/plan/split.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "common/base/error.h"
#include "common/plan/slices.h"

namespace muster {

std::vector<int64_t> EvenSizes(int64_t pieces, size_t parts) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < parts; ++i) {
    sizes.push_back(EvenPart(pieces, static_cast<int64_t>(parts), static_cast<int64_t>(i)).size());
  }
  return sizes;
}

// Greedily gives each piece to the worker that would finish it first. This is optimal: in a
// division with a shorter maximum, the slowest worker would have fewer pieces and some other worker
// more. But when the slowest worker got its last piece, no other worker could have finished one
// more piece sooner.
std::vector<int64_t> SplitByTime(int64_t pieces, std::span<const double> times, int64_t least) {
  const auto parts = static_cast<int64_t>(times.size());
  MUSTER_CHECK(parts > 0 && pieces >= 0 && least >= 0);
  if (pieces < parts * least) least = 0;
  std::vector<int64_t> sizes(times.size(), least);
  using Next = std::pair<double, size_t>;  // finish time with one more piece, and worker
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  const auto offer = [&](size_t i) {
    MUSTER_CHECK(times[i] > 0);
    next.emplace(static_cast<double>(sizes[i] + 1) * times[i], i);
  };
  for (size_t i = 0; i < times.size(); ++i) offer(i);
  for (int64_t left = pieces - parts * least; left > 0; --left) {
    const size_t who = next.top().second;
    next.pop();
    ++sizes[who];
    offer(who);
  }
  return sizes;
}

double Longest(std::span<const int64_t> sizes, std::span<const double> times) {
  MUSTER_CHECK(sizes.size() == times.size());
  double longest = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    longest = std::max(longest, static_cast<double>(sizes[i]) * times[i]);
  }
  return longest;
}

}  // namespace muster
