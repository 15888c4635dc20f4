// Streams, memory and copies, in short form for tests of the software GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "tests/cuda/software_gpu/control.h"

namespace muster::software_gpu {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Streams are threads, so death tests cannot fork.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Start({});
  }
  void TearDown() override {
    Free();
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    EXPECT_TRUE(Leaks().empty()) << Leaks().front();
    Reset({});
  }

  void Start(const Options& options) {
    Free();
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    Reset(options);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  // Frees all allocations.
  void Free() {
    for (void* memory : memory_) cudaFree(memory);
    for (void* memory : host_) cudaFreeHost(memory);
    memory_.clear();
    host_.clear();
  }
  template <typename T>
  T* Allocate(size_t count) {
    void* at = nullptr;
    EXPECT_EQ(cudaMalloc(&at, count * sizeof(T)), cudaSuccess);
    memory_.push_back(at);
    return static_cast<T*>(at);
  }
  template <typename T>
  T* AllocateHost(size_t count) {
    void* at = nullptr;
    EXPECT_EQ(cudaHostAlloc(&at, count * sizeof(T), cudaHostAllocDefault), cudaSuccess);
    host_.push_back(at);
    return static_cast<T*>(at);
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    T* const to = Allocate<T>(values.size());
    T* const from = AllocateHost<T>(values.size());
    std::memcpy(from, values.data(), values.size() * sizeof(T));
    EXPECT_EQ(cudaMemcpyAsync(to, from, values.size() * sizeof(T), cudaMemcpyHostToDevice, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return to;
  }
  template <typename T>
  std::vector<T> Download(const T* from, size_t count) {
    T* const to = AllocateHost<T>(count);
    EXPECT_EQ(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToHost, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return {to, to + count};
  }

  cudaStream_t stream_ = nullptr;

 private:
  std::vector<void*> memory_;
  std::vector<void*> host_;
};

}  // namespace muster::software_gpu
