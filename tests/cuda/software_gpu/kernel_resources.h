// The resources that a kernel needs on a GPU, as compiled by nvcc. The code that g++ compiles for
// the software GPU says nothing about registers.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace muster::software_gpu {

struct KernelResources {
  int registers = 0;  // per thread
  // Static shared memory of each block; on sm_90 including the KiB that the GPU reserves.
  size_t shared_bytes = 0;
  int most_threads = 0;  // the block size limit from __launch_bounds__, or 0
};

// For each kernel in a library that nvcc made, by its mangled name, the maximum over all
// architectures. The same numbers as `cuobjdump -res-usage LIBRARY`. Throws Error.
std::map<std::string, KernelResources> ReadKernelResources(const std::string& library);

// Converts nvcc's mangled name to g++'s. They differ for unnamed namespaces.
std::string HostNameOf(std::string kernel);

// g++'s names of the functions at this address: several, if identical code was merged.
std::vector<std::string> NamesOfCode(const void* address);

// Explains why no GPU can run a block of this size, or returns "".
std::string WhyTooLarge(const KernelResources& kernel, size_t threads, size_t dynamic_bytes,
                        size_t most_shared_bytes);

}  // namespace muster::software_gpu
