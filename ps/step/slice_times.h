// How long each worker takes for a slice, compute and input: what it reports of its steps.
//
// Owner: Shares. Used in the loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace muster {

class SliceTimes {
 public:
  // So many reports make a measurement; of more, the last ones count.
  static constexpr size_t kLeast = 5, kMost = 200;

  explicit SliceTimes(size_t seats) : seats_(seats) {}

  // Ranks that it does not know are left out, as are times that cannot be.
  void Add(uint32_t rank, double ms);
  // Another process will have the seat.
  void Forget(uint32_t rank);

  // Milliseconds: the median of what was reported since the last Renew, or, where that is too
  // little, what it was then. Nothing: it was never enough.
  std::optional<double> Of(uint32_t rank) const;
  // The same of each of these; of whom nothing is known, as much as the others take (their median).
  // Empty: nothing is known of anybody.
  std::vector<double> OfEach(const std::vector<uint32_t>& ranks) const;
  // From now on only new reports count, where there are enough of them.
  void Renew();

 private:
  struct Seat {
    std::vector<double> recent;  // a ring
    size_t next = 0;
    std::optional<double> before;
  };
  std::vector<Seat> seats_;
};

}  // namespace muster
