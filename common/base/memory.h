// Memory for tensors, malloc settings, and annotations for ThreadSanitizer.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace muster {

constexpr size_t kCacheLine = 64;
constexpr size_t kMostPage = size_t{64} << 10;  // the largest base page of any processor

// Free with std::free. `least_alignment` must be a power of two. Large blocks use 2 MiB pages if
// available, which reduces TLB misses. Throws std::bad_alloc.
void* AllocateAligned(size_t bytes, size_t least_alignment = kCacheLine);

// Returns all whole pages in this range to the system. They read as zeros and occupy memory again
// when they are written. The range stays allocated; concurrent readers see old values or zeros.
// kShared: the pages belong to a memfd and are released for all processes that map it.
enum class PagesOf { kProcess, kShared };
void GiveBackPages(void* memory, size_t bytes, PagesOf whose);

// Zeroed numbers, at least 64-byte aligned. Movable, not copyable.
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

// Makes malloc keep freed memory. libzmq allocates a new buffer per received message. By default,
// glibc maps and unmaps large buffers each time, and the kernel must clear every page, which takes
// a fifth of a 100 MB round over TCP. Call before starting threads. The process stays at its peak
// size.
void KeepFreedMemory();

// Annotate memory that is passed between threads inside a library built without ThreadSanitizer,
// such as libzmq. Everything before TsanRelease happens before everything after TsanAcquire of the
// same address. No-ops in other builds.
inline void TsanRelease([[maybe_unused]] void* address) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(address);
#endif
}

inline void TsanAcquire([[maybe_unused]] void* address) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(address);
#endif
}

}  // namespace muster
