// The resources of launched kernels. See KernelResources.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda/software_gpu/kernel_resources.h"

namespace muster::software_gpu {

// Thread-safe.
class KernelTable {
 public:
  // The kernel's resources, as declared or as in libmuster_cuda.so of the same build; none if that
  // was not built. Kernels that are in neither are listed in unknown().
  std::optional<KernelResources> Find(const void* kernel);
  void Declare(const void* kernel, const KernelResources& resources);
  std::vector<std::string> unknown();

 private:
  std::mutex mutex_;
  std::map<const void*, std::optional<KernelResources>> known_;
  std::optional<std::map<std::string, KernelResources>> plugin_;  // empty until it is read
  std::set<std::string> unknown_;
};

}  // namespace muster::software_gpu
