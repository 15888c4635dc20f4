// What is known of the kernels that are launched. See KernelResources.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda/software_gpu/kernel_resources.h"

namespace muster::software_gpu {

// All threads.
class KernelTable {
 public:
  // Of this kernel, as it was declared or as libmuster_cuda.so of the same build has it; none where
  // that was not built. What is neither declared nor in there is kept in unknown().
  std::optional<KernelResources> Find(const void* kernel);
  void Declare(const void* kernel, const KernelResources& resources);
  std::vector<std::string> unknown();

 private:
  std::mutex mutex_;
  std::map<const void*, std::optional<KernelResources>> known_;
  std::optional<std::map<std::string, KernelResources>> plugin_;  // once it was read
  std::set<std::string> unknown_;
};

}  // namespace muster::software_gpu
