#include "tests/cuda/software_gpu/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

// The plugin for real GPUs, read at the first kernel launch; "" without nvcc.
constexpr const char* kPlugin = MUSTER_REAL_PLUGIN;

std::map<std::string, KernelResources> ReadPlugin() {
  if (*kPlugin == '\0') return {};
  if (std::filesystem::exists(kPlugin)) return ReadKernelResources(kPlugin);
  ReportViolation(fmt::format("the resources of kernels are unknown: build {} first", kPlugin));
  return {};
}

}  // namespace

std::optional<KernelResources> KernelTable::Find(const void* kernel) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = known_.try_emplace(kernel);
  if (!is_new) return found->second;
  if (!plugin_) plugin_ = ReadPlugin();
  if (plugin_->empty()) return std::nullopt;
  for (const std::string& name : NamesOfCode(kernel)) {
    if (const auto of_plugin = plugin_->find(name); of_plugin != plugin_->end()) {
      found->second = of_plugin->second;
      return found->second;
    }
  }
  unknown_.insert(DescribeCode(kernel));
  return std::nullopt;
}

void KernelTable::Declare(const void* kernel, const KernelResources& resources) {
  const std::lock_guard lock(mutex_);
  known_[kernel] = resources;
}

std::vector<std::string> KernelTable::unknown() {
  const std::lock_guard lock(mutex_);
  return {unknown_.begin(), unknown_.end()};
}

}  // namespace muster::software_gpu
