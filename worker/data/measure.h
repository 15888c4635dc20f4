// Measures the mean and standard deviation of a data set.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/dataset.h"

namespace muster {

inline constexpr int64_t kMostMeasured = 4096;  // samples

struct ChannelMoments {
  std::vector<double> mean, stddev;  // for each channel
  // Channels with the same value in all samples. Their stddev is set to 1.
  std::vector<int64_t> constant;
  int64_t samples = 0;  // the number of measured samples
};

// Measures up to kMostMeasured samples, spread evenly over the set, as `loader` prepares them for
// an evaluation. Uses `threads` threads; the bits do not depend on their number. Throws what the
// loader throws.
ChannelMoments MeasureChannels(const Dataset& set, const SampleLoader& loader, int threads);

}  // namespace muster
