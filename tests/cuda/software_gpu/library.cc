#include "tests/cuda/software_gpu/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/cuda/software_gpu/access.h"

namespace muster::software_gpu {
namespace {

// More of a workspace would cost time and find no more.
constexpr size_t kSpoiled = 64 << 10;

}  // namespace

std::string WrongWorkspace(const Workspace& workspace, size_t alignment) {
  if (workspace.bytes == 0) return "";
  const DeviceMemory& memory = Device::Get().memory();
  if (!memory.Contains(workspace.data)) return "a workspace that is not in the device's memory";
  if (!memory.IsAllocated(workspace.data, workspace.bytes)) {
    return fmt::format("a workspace of {} bytes at {}", workspace.bytes,
                       memory.Describe(workspace.data));
  }
  if (reinterpret_cast<uintptr_t>(workspace.data) % alignment != 0) {
    return fmt::format("a workspace that is not aligned to {} bytes", alignment);
  }
  return "";
}

void SpoilWorkspace(const Work& work, const Workspace& workspace) {
  const size_t bytes = std::min(workspace.bytes, kSpoiled);
  if (bytes == 0 || !WriteRange(work, workspace.data, bytes)) return;
  std::memset(Device::Get().memory().Alias(workspace.data), 0xff, bytes);
}

}  // namespace muster::software_gpu
