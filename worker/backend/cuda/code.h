// Which GPUs the kernels were compiled for.
#pragma once

#include <string>

namespace muster::cuda {

// Whether the GPU of this thread can run them.
bool HasCode();
// A list such as "sm_75, sm_80, sm_90 and compatible GPUs".
std::string Architectures();

}  // namespace muster::cuda
