// Aligned memory for tensors.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#include "common/base/aligned_memory.h"

namespace muster {

// Zeroed numbers, 64-byte aligned or more. Moves, does not copy.
template <typename T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(size_t size, size_t alignment = kCacheLine) : size_(size) {
    const size_t bytes = (size * sizeof(T) + kCacheLine - 1) / kCacheLine * kCacheLine;
    data_ = static_cast<T*>(AllocateAligned(bytes, alignment));
    std::memset(data_, 0, bytes);
  }
  AlignedArray(AlignedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedArray& operator=(AlignedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~AlignedArray() { std::free(data_); }

  std::span<T> values() { return {data_, size_}; }
  std::span<const T> values() const { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

class Arena : public AlignedArray<float> {
 public:
  using AlignedArray::AlignedArray;
  std::span<float> floats() { return values(); }
  std::span<const float> floats() const { return values(); }
};

}  // namespace muster
