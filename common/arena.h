// Aligned memory for tensors.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace muster {

// Zeroed floats, 64-byte aligned. Moves, does not copy.
class Arena {
 public:
  Arena() = default;
  explicit Arena(size_t floats) : size_(floats) {
    const size_t bytes = (floats * sizeof(float) + 63) / 64 * 64;
    data_ = static_cast<float*>(std::aligned_alloc(64, bytes == 0 ? 64 : bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(data_, 0, bytes);
  }
  Arena(Arena&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Arena& operator=(Arena&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Arena() { std::free(data_); }

  std::span<float> floats() { return {data_, size_}; }
  std::span<const float> floats() const { return {data_, size_}; }

 private:
  float* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace muster
