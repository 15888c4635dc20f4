// Handles of CUDA and its libraries, freed with the object.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "worker/backend/cuda/check.h"

namespace muster::cuda {

// A handle of type T and the function that frees it, whose result is ignored.
template <typename T, auto kFree>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  ~Handle() {
    if (value_ != T{}) (void)kFree(value_);
  }
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  T get() const { return value_; }
  explicit operator bool() const { return value_ != T{}; }

 private:
  T value_{};
};

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using CublasHandle = Handle<cublasHandle_t, cublasDestroy>;
using CublasLtHandle = Handle<cublasLtHandle_t, cublasLtDestroy>;
using DeviceMemory = Handle<void*, cudaFree>;
using LockedMemory = Handle<void*, cudaFreeHost>;

inline StreamHandle MakeStream() {
  cudaStream_t stream{};
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  return StreamHandle(stream);
}
inline EventHandle MakeEventHandle() {
  cudaEvent_t event{};
  Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
  return EventHandle(event);
}
inline LockedMemory AllocateLocked(size_t bytes) {
  void* memory = nullptr;
  CheckHostAlloc(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), bytes);
  return LockedMemory(memory);
}

}  // namespace muster::cuda
