// Whether the settings of optimizer, learning rate, data and evaluation contradict one another.
#pragma once

#include "common/config/config_places.h"
#include "proto/config_fwd.h"

namespace muster {

// Notes every error with the setting's place.
void CheckTraining(const config::Config& config, const ConfigPlaces& places);

}  // namespace muster
