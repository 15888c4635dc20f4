// Common parts of cuBLAS, cublasLt and cuDNN on the software GPU.
#pragma once

#include <cstddef>
#include <string>

#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {

// Wraps a library call: injects faults, and returns `on_failure` if the device has failed.
template <typename Status, typename Body>
Status LibraryCall(const char* call, CallKind kind, Status on_failure, const Body& body) {
  Device& device = Device::Get();
  int fault = 0;
  if (!device.Begin(call, kind, &fault)) return static_cast<Status>(fault);
  if (device.failure() != cudaSuccess) return on_failure;
  return body();
}

// A call that makes the object behind a handle, and one that destroys it. Objects that remain are
// leaks. All libraries' status for success is 0.
template <typename Status, typename Object, typename Handle>
Status Create(const char* call, Status on_failure, Handle* handle, const Object& object,
              CallKind kind = CallKind::kAnywhere) {
  return LibraryCall(call, kind, on_failure, [&] {
    auto* const made = new Object(object);
    Device::Get().Track(made, std::string("what ") + call + " made");
    *handle = reinterpret_cast<Handle>(made);
    return Status{};
  });
}
template <typename Object, typename Status>
Status Destroy(const char* call, Status on_failure, const void* handle) {
  if (!Device::Get().Untrack(handle)) {
    return Refuse(on_failure, std::string(call) + ": no such object");
  }
  delete static_cast<const Object*>(handle);
  return Status{};
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
