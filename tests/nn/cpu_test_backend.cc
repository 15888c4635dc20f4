#include "tests/nn/test_backend.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace muster {

std::unique_ptr<Backend> MakeTestBackend(int threads) { return MakeCpuBackend(threads); }

std::vector<int> TestThreads() { return {1, 2}; }

}  // namespace muster
