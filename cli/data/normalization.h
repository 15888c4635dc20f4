// data.preprocess.measure_mean_stddev: the command line measures, and the run gets the numbers.
#pragma once

#include <string>
#include <vector>

#include "proto/config_fwd.h"

namespace muster {

// If mean and stddev are to be measured (MeasuresNormalization), reads the training set, writes
// both into the config and takes measure_mean_stddev back, so that whoever goes on with that config
// or repeats it has the same bits. Returns lines that say so. Throws Error(kData) for data that
// cannot be read.
std::vector<std::string> MeasureNormalization(config::Config& config);

}  // namespace muster
