// The recent step times of each rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/wire.pb.h"

namespace muster {

inline constexpr size_t kStepPartCount = 5;  // as in wire::StepTimes, from compute_ms on

// The value nearest to the given quantile; 0 if empty. Reorders `values`.
double Quantile(std::vector<double>& values, double share);

class RecentTimes {
 public:
  static constexpr size_t kSteps = 200;

  explicit RecentTimes(size_t ranks) : ranks_(ranks) {}

  // Called when a rank is lost or reset. Drops its times and excludes it until it reports again.
  void Forget(uint32_t rank);
  bool Reports(uint32_t rank) const { return ranks_[rank].reports; }

  // Ignores unknown ranks.
  void Add(uint32_t rank, const wire::StepTimes& times);

  struct Spread {
    double p50 = 0, p99 = 0;
  };
  using Parts = std::array<Spread, kStepPartCount>;
  // The spread of the rank's times in milliseconds; all 0 before its first report.
  Parts Of(uint32_t rank) const;
  // The rank's last report, or an empty one.
  const wire::StepTimes& Last(uint32_t rank) const { return ranks_[rank].last; }
  // Mean compute and input time of the last `steps` steps, without the longest one, which may be an
  // outlier. 0 if fewer are stored.
  double UsualBusy(uint32_t rank, size_t steps) const;
  // Mean compute and input time of all stored steps.
  double MeanBusy(uint32_t rank) const;

  size_t ranks() const { return ranks_.size(); }

 private:
  struct Rank {
    std::vector<std::array<float, kStepPartCount>> ring;  // at most kSteps
    size_t next = 0;
    wire::StepTimes last;
    bool reports = true;
  };
  std::vector<Rank> ranks_;
};

}  // namespace muster
