// Derives the link options of both ends from a config.
#pragma once

#include "common/graph/variable_layout.h"
#include "common/link/link.h"
#include "proto/config_fwd.h"

namespace muster {

// An empty layout is not known yet.
LinkOptions LinkOptionsFor(const config::Config& config, const VariableLayout& layout);

}  // namespace muster
