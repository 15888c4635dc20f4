// Common parts of cuBLAS and cuDNN on the software GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "tests/cuda/software_gpu/device.h"

namespace muster::software_gpu {

// Wraps a library call: injects faults and returns the device's failure.
template <typename Status>
Status LibraryCall(const char* call, CallKind kind, Status on_failure,
                   const std::function<Status()>& body) {
  Device& device = Device::Get();
  int fault = 0;
  if (!device.Begin(call, kind, &fault)) return static_cast<Status>(fault);
  if (device.failure() != cudaSuccess) return on_failure;
  return body();
}

// Whether the GPU's libraries support TF32 and bfloat16 products.
bool HasNarrowTypes();

// Memory that a library may use while it works. Its contents are lost.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// Returns "" if the whole workspace is allocated and aligned, otherwise the error.
std::string WrongWorkspace(const Workspace& workspace, size_t alignment = 256);

// Simulates its use. Two streams that share a workspace are a violation.
void SpoilWorkspace(const Work& work, const Workspace& workspace);

}  // namespace muster::software_gpu
