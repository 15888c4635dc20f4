// The CUDA runtime's calls for memory and copies.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "tests/cuda/software_gpu/access.h"
#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

// Waits for all streams, as cudaFree does.
void WaitForAll() {
  Device& device = Device::Get();
  for (Stream* stream : device.streams()) {
    const std::shared_ptr<Mark> mark = stream->PushMark(device.known());
    if (!mark->Wait(60)) ReportViolation("a stream has not ended within a minute");
    device.Learn(mark->clock());
  }
}

// Whether all pages are currently mapped as writable.
bool IsWritable(const void* begin, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    char write = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*c%c", &from, &to, &write) != 3) continue;
    if (from < first + bytes && first < to && write != 'w') return false;
  }
  return true;
}

// Checks page-locked host memory for a copy. Returns "" if it may be used.
std::string WrongHostMemory(const void* host, size_t bytes, bool written) {
  Device& device = Device::Get();
  if (device.memory().Contains(host)) return "a device address where a host address is expected";
  const HostMemory::Region* const region = device.host().Find(host, bytes);
  if (region == nullptr) {
    return fmt::format("{} bytes of host memory that is not page-locked", bytes);
  }
  if (written && region->read_only) return "a copy to host memory that is registered as read-only";
  return "";
}

// Maps new host memory, filled with ones. It maps one small file repeatedly, copy-on-write, so that
// a large buffer costs little if a program uses only a part of it.
void* MapOnes(size_t bytes) {
  constexpr size_t kOnes = size_t{2} << 20;
  static const int file = [] {
    const int made = memfd_create("software_gpu_ones", MFD_CLOEXEC);
    const std::string ones(kOnes, '\xff');
    MUSTER_CHECK(made >= 0 && write(made, ones.data(), kOnes) == static_cast<ssize_t>(kOnes));
    return made;
  }();
  constexpr int kWritable = PROT_READ | PROT_WRITE;
  void* const at = mmap(nullptr, bytes, kWritable, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  for (size_t done = 0; done < bytes; done += kOnes) {
    void* const part = static_cast<char*>(at) + done;
    const size_t part_bytes = std::min(kOnes, bytes - done);
    MUSTER_CHECK(mmap(part, part_bytes, kWritable, MAP_PRIVATE | MAP_FIXED, file, 0) == part);
  }
  return at;
}

std::string WrongDeviceMemory(const void* address, size_t bytes) {
  const DeviceMemory& memory = Device::Get().memory();
  if (!memory.Contains(address)) return "a host address where a device address is expected";
  if (memory.IsAllocated(address, bytes)) return "";
  return fmt::format("{} bytes at {}", bytes, memory.Describe(address));
}

cudaError_t CopyIn(Stream& stream, void* device_to, const void* host, size_t bytes) {
  const auto copy = Device::Get().host().BeginCopy(host, bytes, true);
  stream.Push(Device::Get().known(), "a copy to the device", nullptr,
              [copy, device_to, host, bytes](const Work& work) {
                if (!WriteRange(work, device_to, bytes)) return;
                std::memcpy(Device::Get().memory().Alias(device_to), host, bytes);
              });
  return cudaSuccess;
}

// Memory that was never written reads as NaN.
void CopyToHost(void* host, const void* device_from, size_t bytes) {
  const DeviceMemory& memory = Device::Get().memory();
  std::memcpy(host, memory.Alias(device_from), bytes);
  const size_t first = memory.Offset(device_from);
  memory.shadow().ForUndefined(first, bytes, [&](size_t offset, size_t part) {
    std::memset(static_cast<char*>(host) + (offset - first), 0xff, part);
  });
}

cudaError_t CopyOut(Stream& stream, void* host, const void* device_from, size_t bytes) {
  Device& device = Device::Get();
  // Spoils the destination, so that reading it before the copy is done yields NaN. Not if an
  // earlier copy must still read it.
  if (!device.host().IsRead(host, bytes)) std::memset(host, 0xff, bytes);
  const auto copy = device.host().BeginCopy(host, bytes, false);
  stream.Push(device.known(), "a copy from the device", nullptr,
              [copy, host, device_from, bytes](const Work& work) {
                if (!ReadRange(work, device_from, bytes, Undefined::kAllowed)) return;
                CopyToHost(host, device_from, bytes);
              });
  return cudaSuccess;
}

cudaError_t CopyWithin(Stream& stream, void* to, const void* from, size_t bytes) {
  stream.Push(Device::Get().known(), "a copy on the device", nullptr, [=](const Work& work) {
    DeviceMemory& memory = Device::Get().memory();
    if (!ReadRange(work, from, bytes, Undefined::kAllowed) || !WriteRange(work, to, bytes)) return;
    std::memmove(memory.Alias(to), memory.Alias(from), bytes);
    const size_t first = memory.Offset(from);
    memory.shadow().ForUndefined(first, bytes, [&](size_t offset, size_t part) {
      memory.shadow().SetUndefined(memory.Offset(to) + (offset - first), part);
    });
  });
  return cudaSuccess;
}

cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, Stream& stream) {
  if (bytes == 0) return cudaSuccess;
  std::string wrong;
  if (kind == cudaMemcpyHostToDevice) {
    wrong = WrongHostMemory(from, bytes, false) + WrongDeviceMemory(to, bytes);
  } else if (kind == cudaMemcpyDeviceToHost) {
    wrong = WrongHostMemory(to, bytes, true) + WrongDeviceMemory(from, bytes);
  } else if (kind == cudaMemcpyDeviceToDevice) {
    wrong = WrongDeviceMemory(from, bytes) + WrongDeviceMemory(to, bytes);
  } else {
    wrong = "a copy without a direction";
  }
  if (!wrong.empty()) return Refuse(cudaErrorInvalidValue, "cudaMemcpyAsync: " + wrong);
  if (kind == cudaMemcpyHostToDevice) return CopyIn(stream, to, from, bytes);
  if (kind == cudaMemcpyDeviceToHost) return CopyOut(stream, to, from, bytes);
  return CopyWithin(stream, to, from, bytes);
}

}  // namespace
}  // namespace muster::software_gpu

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return RuntimeCall("cudaMalloc", CallKind::kMakes, [&] {
    *address = nullptr;
    if (bytes == 0) return cudaSuccess;
    *address = Device::Get().memory().Allocate(bytes);
    return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFree(void* address) {
  return RuntimeCall("cudaFree", CallKind::kNotInAStep, [&] {
    WaitForAll();
    if (address == nullptr || Device::Get().memory().Free(address)) return cudaSuccess;
    return Refuse(cudaErrorInvalidValue, "cudaFree of " + Device::Get().memory().Describe(address));
  });
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  return RuntimeCall("cudaHostAlloc", CallKind::kMakes, [&] {
    *address = nullptr;
    if (bytes == 0) return cudaSuccess;
    void* const at = MapOnes(bytes);
    if (at == nullptr) return cudaErrorMemoryAllocation;
    Device::Get().host().Add(at, {.bytes = bytes, .allocated = true});
    *address = at;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* address) {
  return RuntimeCall("cudaFreeHost", CallKind::kNotInAStep, [&] {
    if (address == nullptr) return cudaSuccess;
    const HostMemory::Region* const region = Device::Get().host().Find(address, 1);
    const size_t bytes = region != nullptr ? region->bytes : 0;
    if (!Device::Get().host().Remove(address, true)) {
      return Refuse(cudaErrorInvalidValue, "cudaFreeHost of memory that is not from cudaHostAlloc");
    }
    munmap(address, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned flags) {
  return RuntimeCall("cudaHostRegister", CallKind::kMakes, [&] {
    Device& device = Device::Get();
    const bool read_only = (flags & cudaHostRegisterReadOnly) != 0;
    if (address == nullptr || bytes == 0) return cudaErrorInvalidValue;
    if (read_only && !device.options().read_only_registration) return cudaErrorNotSupported;
    if (device.memory().Contains(address)) {
      return Refuse(cudaErrorInvalidValue, "cudaHostRegister of device memory");
    }
    // Like the driver, requires the flag for read-only pages.
    if (!read_only && !IsWritable(address, bytes)) return cudaErrorInvalidValue;
    return device.host().Add(address, {.bytes = bytes, .read_only = read_only})
               ? cudaSuccess
               : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* address) {
  return RuntimeCall("cudaHostUnregister", CallKind::kNotInAStep, [&] {
    if (Device::Get().host().Remove(address, false)) return cudaSuccess;
    return Refuse(cudaErrorHostMemoryNotRegistered,
                  "cudaHostUnregister of memory that is not registered");
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return RuntimeCall("cudaMemcpyAsync", CallKind::kAnywhere, [&] {
    Stream* const on = Device::Get().Find(stream, "cudaMemcpyAsync");
    return on == nullptr ? cudaErrorInvalidResourceHandle : Copy(to, from, bytes, kind, *on);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return RuntimeCall("cudaMemsetAsync", CallKind::kAnywhere, [&] {
    Stream* const on = Device::Get().Find(stream, "cudaMemsetAsync");
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    const std::string wrong = WrongDeviceMemory(to, bytes);
    if (!wrong.empty()) return Refuse(cudaErrorInvalidValue, "cudaMemsetAsync: " + wrong);
    on->Push(Device::Get().known(), "cudaMemsetAsync", nullptr, [=](const Work& work) {
      if (!WriteRange(work, to, bytes)) return;
      std::memset(Device::Get().memory().Alias(to), value, bytes);
    });
    return cudaSuccess;
  });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  return RuntimeCall("cudaIpcGetMemHandle", CallKind::kAnywhere, [&] {
    DeviceMemory& device = Device::Get().memory();
    if (!device.allocations().contains(reinterpret_cast<uintptr_t>(memory))) {
      return Refuse(cudaErrorInvalidValue,
                    "cudaIpcGetMemHandle: not the beginning of an allocation");
    }
    const DeviceMemory::Shared shared = device.Share(memory);
    static_assert(sizeof shared <= sizeof handle->reserved);
    *handle = {};
    std::memcpy(handle->reserved, &shared, sizeof shared);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  return RuntimeCall("cudaIpcOpenMemHandle", CallKind::kAnywhere, [&] {
    DeviceMemory::Shared shared{};
    std::memcpy(&shared, handle.reserved, sizeof shared);
    *memory = Device::Get().memory().OpenShared(shared);
    return *memory == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
  });
}

cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return RuntimeCall("cudaIpcCloseMemHandle", CallKind::kNotInAStep, [&] {
    WaitForAll();
    if (Device::Get().memory().CloseShared(memory)) return cudaSuccess;
    return Refuse(cudaErrorInvalidValue, "cudaIpcCloseMemHandle: memory that is not open");
  });
}
}
