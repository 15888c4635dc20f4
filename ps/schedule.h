// Learning-rate schedules, counted in samples. See LearningRate in proto/config.proto.
#pragma once

#include <cstdint>

#include "proto/config.pb.h"

namespace muster {

// The rate of an update before which `samples` samples have been seen.
float LearningRateAt(const config::LearningRate& schedule, int64_t samples);

}  // namespace muster
