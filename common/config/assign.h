// The assignment that a job begins with.
#pragma once

#include "common/plan/assignment.h"
#include "proto/config_fwd.h"

namespace muster {

// `config` is resolved.
Assignment FirstAssignment(const config::Config& config);

}  // namespace muster
