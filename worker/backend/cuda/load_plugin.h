// Loads libmuster_cuda.so, and with it CUDA: only in a worker that is to compute on a card.
#pragma once

#include <string>

#include "worker/backend/cuda/plugin.h"

namespace muster {

// The plugin lies beside this program or in ../lib. The libraries that it needs are found as always
// (LD_LIBRARY_PATH, ldconfig), or in one of `folders`, separated by colons. It stays loaded. Throws
// Error(kFailure): no plugin, no library, a plugin of another build, no driver, no card.
CudaWorker LoadCudaWorker(const CudaOptions& options, const std::string& folders);

// Where the build found the CUDA toolkit's libraries; "" without a toolkit.
std::string CudaLibraryFolders();

}  // namespace muster
