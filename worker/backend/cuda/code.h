// Which GPUs the kernels were compiled for.
#pragma once

#include <string>

namespace muster::cuda {

// Whether this thread's GPU can run the kernels.
bool HasCode();
// A list such as "sm_75, sm_80, sm_90 and compatible GPUs".
std::string Architectures();

}  // namespace muster::cuda
