// The code that nvcc made: it is for some cards only.
#pragma once

#include <string>

namespace muster::cuda {

// Whether the card of this thread can run it.
bool HasCode();
// "sm_75, sm_80, sm_90", in words that end a clause.
std::string Architectures();

}  // namespace muster::cuda
