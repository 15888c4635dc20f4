// Checks that need more than one field's type: ranges, required fields, contradictions.
#pragma once

#include "common/config_fwd.h"
#include "common/text_format.h"

namespace muster {

// Throws Error(kUsage): location, key, what was expected, what is there.
void CheckConfig(const config::Config& config, const std::string& file, const Locations& locations);

}  // namespace muster
