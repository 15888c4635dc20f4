// Each worker's time per slice (compute and input), from its reports.
//
// Owner: Shares. Used on the loop thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace muster {

class SliceTimes {
 public:
  // The minimum number of reports for a measurement, and the number of recent ones to use.
  static constexpr size_t kLeast = 5, kMost = 200;

  explicit SliceTimes(size_t seats) : seats_(seats) {}

  // Ignores unknown ranks and impossible times.
  void Add(uint32_t rank, double ms);
  // Drops the rank's times, because another process will get the rank.
  void Forget(uint32_t rank);

  // The median in milliseconds since the last Renew or, if there are too few reports since then,
  // the median before it. Empty if there were never enough reports.
  std::optional<double> Of(uint32_t rank) const;
  // The medians of several ranks. Ranks without a measurement get the median of the others. Empty
  // if no rank has one.
  std::vector<double> OfEach(const std::vector<uint32_t>& ranks) const;
  // From now on, uses new reports as soon as there are enough.
  void Renew();

 private:
  struct Seat {
    std::vector<double> recent;  // a ring buffer
    size_t next = 0;
    std::optional<double> before;
  };
  std::vector<Seat> seats_;
};

}  // namespace muster
