// What cuBLAS and cuDNN have in common here.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "tests/cuda/software_gpu/device.h"

namespace muster::software_gpu {

// One call of a library: faults and the device's failure.
template <typename Status>
Status LibraryCall(const char* call, CallKind kind, Status on_failure,
                   const std::function<Status()>& body) {
  Device& device = Device::Get();
  int fault = 0;
  if (!device.Begin(call, kind, &fault)) return static_cast<Status>(fault);
  if (device.failure() != cudaSuccess) return on_failure;
  return body();
}

// Whether the card's libraries multiply TF32 and bfloat16.
bool HasNarrowTypes();

// What a library may write to while it works: everything in it is lost.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// Empty: the whole workspace is allocated, and aligned as the libraries want it.
std::string WrongWorkspace(const Workspace& workspace, size_t alignment = 256);

// Does as if it used it: two streams that share one are a violation.
void SpoilWorkspace(const Work& work, const Workspace& workspace);

}  // namespace muster::software_gpu
