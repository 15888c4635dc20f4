// Whether every setting is there that must be, is of its message's type, and within its limits
// (config.proto).
#pragma once

#include "common/config/config_places.h"
#include "proto/config_fwd.h"

namespace muster {

// Notes every error with the setting's place.
void CheckRanges(const config::Config& config, const ConfigPlaces& places);

}  // namespace muster
