// Memory for tensors, the policy of malloc, and hand-overs that ThreadSanitizer cannot see.
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
constexpr size_t kMostPage = size_t{64} << 10;  // of any processor, huge pages apart

// To be freed with std::free. `least_alignment`: a power of two. Large memory lies, where the
// kernel has any, in pages of 2 MiB: passes over it miss the TLB less often. Throws std::bad_alloc.
void* AllocateAligned(size_t bytes, size_t least_alignment = kCacheLine);

// Gives the pages that lie wholly in this memory back to the system; they are zeros from then on,
// and take memory again when they are written. It stays allocated, and who still reads it reads the
// old values or zeros. kShared: of a memfd, for all that map it.
enum class PagesOf { kProcess, kShared };
void GiveBackPages(void* memory, size_t bytes, PagesOf whose);

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

// Has malloc keep what is freed, for the next message: libzmq takes a fresh buffer for each one
// that it receives, and by default glibc maps and unmaps those of a megabyte one by one, so that
// every page of every message is cleared by the kernel first (a fifth of a round of 100 MB over
// TCP). Call it before there are threads. The process stays as large as it was at most.
void KeepFreedMemory();

// For memory that goes from one thread to another inside of a library that is built without
// ThreadSanitizer, such as libzmq: what happened before TsanRelease happens before what follows
// TsanAcquire of the same address. Nothing in other builds.
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
