// What tells one run's checkpoints from another's.
#pragma once

#include <string>

namespace muster {

// 32 hexadecimal digits, drawn at random.
std::string NewRunId();

}  // namespace muster
