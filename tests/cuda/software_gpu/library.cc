#include "tests/cuda/software_gpu/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/cuda/software_gpu/access.h"
#include "tests/cuda/software_gpu/random.h"

namespace muster::software_gpu {
namespace {

// Bytes to overwrite at each end of a workspace and in a piece between them, which changes each
// time. To overwrite all of it would take longer and soon find no more.
constexpr size_t kSpoiled = 2 << 10;

void Spoil(const Work& work, const Workspace& workspace, size_t begin) {
  char* const at = static_cast<char*>(workspace.data) + begin;
  const size_t bytes = std::min(workspace.bytes - begin, kSpoiled);
  if (!WriteRange(work, at, bytes)) return;
  std::memset(Device::Get().memory().Alias(at), 0xff, bytes);
}

}  // namespace

bool HasNarrowTypes() { return Device::Get().options().compute_major >= 8; }

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
  if (workspace.bytes == 0) return;
  const size_t last = workspace.bytes - std::min(workspace.bytes, kSpoiled);
  Spoil(work, workspace, 0);
  if (last == 0) return;
  Spoil(work, workspace, Mix(work.segment) % last);
  Spoil(work, workspace, last);
}

}  // namespace muster::software_gpu
