// Loads libmuster_cuda.so, and with it CUDA. Only a worker that computes on a GPU does this.
#pragma once

#include <memory>
#include <string>

#include "worker/backend/cuda/plugin.h"

namespace muster {

// The plugin lies next to this program or in ../lib. Its libraries are found by the loader
// (LD_LIBRARY_PATH, ldconfig), or in one of `folders`, separated by colons. It is never unloaded.
// Throws NoGpu if the plugin, a library or a GPU is missing, or if the plugin is from another
// build. Throws Error(kFailure) if the GPU does not work.
CudaWorker LoadCudaWorker(const CudaOptions& options, const std::string& folders);

// The same for a relay.
std::unique_ptr<GpuAdder> LoadGpuAdder(const CudaOptions& options, const std::string& folders);

// Folders of the CUDA toolkit's libraries, in case the system's loader does not find them.
std::string CudaLibraryFolders();

}  // namespace muster
