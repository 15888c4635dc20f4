// data.preprocess.measure_mean_stddev: the command line measures mean and stddev before the run.
#pragma once

#include <string>
#include <vector>

#include "proto/config_fwd.h"

namespace muster {

// If the config requests measuring (MeasuresNormalization), reads the training set, writes mean and
// stddev to the config, and clears measure_mean_stddev, so that resuming or repeating a run with
// this config gives the same bits. Returns lines to print. Throws Error(kData) if the data cannot
// be read.
std::vector<std::string> MeasureNormalization(config::Config& config);

}  // namespace muster
