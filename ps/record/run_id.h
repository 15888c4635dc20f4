// The id that identifies the checkpoints of a run.
#pragma once

#include <string>

namespace muster {

// 32 random hexadecimal digits.
std::string NewRunId();

}  // namespace muster
