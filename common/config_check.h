// Checks that need more than one field's type: ranges, required fields, contradictions.
#pragma once

#include "common/text_format.h"
#include "proto/config.pb.h"

namespace muster {

// Throws Error(kUsage): location, key, what was expected, what is there.
void CheckConfig(const config::Config& config, const std::string& file, const Locations& locations);

}  // namespace muster
