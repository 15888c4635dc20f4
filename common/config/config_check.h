// Checks that need more than one field's type: ranges, required fields, contradictions.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config_errors.h"
#include "common/config/text_format.h"
#include "proto/config_fwd.h"

namespace muster {

// Throws Error(kUsage) with a line for each mistake: location, key, what was expected, what is
// there. `errors` holds those of reading the config, which are thrown with the others.
void CheckConfig(const config::Config& config, const std::string& file, const Locations& locations,
                 ConfigErrors& errors);

// What is wrong with the steps that are to be traced in a run of so many, or "".
std::string TraceTrouble(const config::Run& run, int64_t steps);

}  // namespace muster
