// Loads libmuster_cuda.so, and with it CUDA: only in a worker that is to compute on a card.
#pragma once

#include <string>

#include "worker/backend/cuda/plugin.h"

namespace muster {

// The plugin lies beside this program or in ../lib. The libraries that it needs are found as always
// (LD_LIBRARY_PATH, ldconfig), or in one of `folders`, separated by colons. It stays loaded. Throws
// NoGpu (also where the plugin is of another build), and Error(kFailure) for a card that does not
// work.
CudaWorker LoadCudaWorker(const CudaOptions& options, const std::string& folders);

// Where the CUDA toolkit's libraries may be, if the system's loader does not find them.
std::string CudaLibraryFolders();

}  // namespace muster
