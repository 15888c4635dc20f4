#include "ps/step/slice_times.h"

#include <cmath>

#include "ps/record/recent_times.h"

namespace muster {

void SliceTimes::Add(uint32_t rank, double ms) {
  if (rank >= seats_.size() || !std::isfinite(ms) || ms <= 0) return;
  Seat& seat = seats_[rank];
  if (seat.recent.size() < kMost) {
    seat.recent.push_back(ms);
  } else {
    seat.recent[seat.next] = ms;
  }
  seat.next = (seat.next + 1) % kMost;
}

void SliceTimes::Forget(uint32_t rank) {
  if (rank < seats_.size()) seats_[rank] = {};
}

std::optional<double> SliceTimes::Of(uint32_t rank) const {
  if (rank >= seats_.size()) return std::nullopt;
  const Seat& seat = seats_[rank];
  if (seat.recent.size() < kLeast) return seat.before;
  std::vector<double> values = seat.recent;
  return Quantile(values, 0.5);
}

std::vector<double> SliceTimes::OfEach(const std::vector<uint32_t>& ranks) const {
  std::vector<double> known;
  for (const uint32_t rank : ranks) {
    if (const auto ms = Of(rank)) known.push_back(*ms);
  }
  if (known.empty()) return {};
  const double usual = Quantile(known, 0.5);
  std::vector<double> times;
  times.reserve(ranks.size());
  for (const uint32_t rank : ranks) times.push_back(Of(rank).value_or(usual));
  return times;
}

void SliceTimes::Renew() {
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    const std::optional<double> now = Of(rank);
    seats_[rank] = {.recent = {}, .next = 0, .before = now};
  }
}

}  // namespace muster
