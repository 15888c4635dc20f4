// The names of the CUDA backend's file, in order of preference. Wheels have the major version of
// CUDA in it, so that both can be installed.
#pragma once

namespace muster {

inline constexpr const char* kCudaPluginFiles[] = {"libmuster_cuda.so", "libmuster_cuda13.so",
                                                   "libmuster_cuda12.so"};

}  // namespace muster
