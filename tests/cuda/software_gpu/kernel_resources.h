// What a kernel needs of a card, as nvcc compiled it: the software GPU runs what g++ made of it,
// which says nothing of registers.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace muster::software_gpu {

struct KernelResources {
  int registers = 0;  // of each thread
  // Static shared memory of each block; on sm_90 including the KiB that the GPU reserves.
  size_t shared_bytes = 0;
  int most_threads = 0;  // of a block, where the kernel says so (__launch_bounds__); 0: it does not
};

// For each kernel in a library that nvcc made, by its mangled name, the maximum over all
// architectures. The same numbers as `cuobjdump -res-usage LIBRARY`. Throws Error.
std::map<std::string, KernelResources> ReadKernelResources(const std::string& library);

// g++'s name for what nvcc calls so: they call unnamed namespaces differently.
std::string HostNameOf(std::string kernel);

// How g++ calls the functions at this address: several, if they came out the same.
std::vector<std::string> NamesOfCode(const void* address);

// Why no card runs a block of so many threads of such a kernel, or "".
std::string WhyTooLarge(const KernelResources& kernel, size_t threads, size_t dynamic_bytes,
                        size_t most_shared_bytes);

}  // namespace muster::software_gpu
