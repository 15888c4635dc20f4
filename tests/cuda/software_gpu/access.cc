#include "tests/cuda/software_gpu/access.h"

#include <cstring>

#include "tests/cuda/software_gpu/device.h"

namespace muster::software_gpu {

bool ReadRange(const Work&, const void*, size_t, Undefined) { return true; }

bool WriteRange(const Work&, void* begin, size_t bytes) {
  std::memset(Device::Get().memory().State(begin), kDefined, bytes);
  return true;
}

}  // namespace muster::software_gpu
