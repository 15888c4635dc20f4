// The CPU backend: convolutions and dense layers by oneDNN, everything else by own kernels.
//
// Results have the same bits from run to run for the same number of threads, library and
// instruction set. Made and used by one thread; Enter sets flush-to-zero and denormals-are-zero in
// it and in its OpenMP threads, and leaves them set.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace muster {

// `threads`: how many compute, the calling one included; at least 1.
std::unique_ptr<Backend> MakeCpuBackend(int threads);

}  // namespace muster
