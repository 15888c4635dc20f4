// Where each rank's time went in its last steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/wire.pb.h"

namespace muster {

inline constexpr size_t kStepPartCount = 5;
inline constexpr std::array<const char*, kStepPartCount> kStepPartNames = {
    "compute_ms", "input_ms", "push_ms", "wait_ms", "pull_ms"};

// The value below which a share of all values lies: the nearest one. 0 of none. Changes the order.
double Quantile(std::vector<double>& values, double share);

class RecentTimes {
 public:
  static constexpr size_t kSteps = 200;

  explicit RecentTimes(size_t ranks) : ranks_(ranks) {}

  // The rank is gone, or begins anew: what it did is forgotten, and nobody is compared with it
  // until it reports again.
  void Forget(uint32_t rank);
  bool Reports(uint32_t rank) const { return ranks_[rank].reports; }

  // Ranks that it does not know are left out.
  void Add(uint32_t rank, const wire::StepTimes& times);

  struct Spread {
    double p50 = 0, p99 = 0;
  };
  using Parts = std::array<Spread, kStepPartCount>;
  // Milliseconds; all 0 before the first report.
  Parts Of(uint32_t rank) const;
  // Compute and input of the last `steps`: the mean without the longest one, which may have been
  // an accident. 0 where there were fewer.
  double UsualBusy(uint32_t rank, size_t steps) const;
  // Mean compute and input of all that are kept.
  double MeanBusy(uint32_t rank) const;

  size_t ranks() const { return ranks_.size(); }
  int64_t last_step(uint32_t rank) const { return ranks_[rank].last_step; }

 private:
  struct Rank {
    std::vector<std::array<float, kStepPartCount>> ring;  // up to kSteps
    size_t next = 0;
    int64_t last_step = -1;
    bool reports = true;
  };
  std::vector<Rank> ranks_;
};

}  // namespace muster
