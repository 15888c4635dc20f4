// Loads libmuster_cuda.so, and with it CUDA: only in a worker that computes on a GPU.
#pragma once

#include <string>

#include "worker/backend/cuda/plugin.h"

namespace muster {

// The plugin lies next to this program or in ../lib. Its libraries are found by the loader
// (LD_LIBRARY_PATH, ldconfig), or in one of `folders`, separated by colons. It is never unloaded.
// Throws NoGpu (also if the plugin is from another build), and Error(kFailure) for a GPU that does
// not work.
CudaWorker LoadCudaWorker(const CudaOptions& options, const std::string& folders);

// Folders of the CUDA toolkit's libraries, in case the system's loader does not find them.
std::string CudaLibraryFolders();

}  // namespace muster
