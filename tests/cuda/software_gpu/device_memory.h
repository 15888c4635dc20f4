// The memory of the software GPU.
//
// It is mapped twice. The device addresses, which programs see, are accessible only while a kernel
// runs, so accesses by the host fault. The copy engine and the libraries use a private alias.
// Allocations are never adjacent, and addresses are reused only after all others have been used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/cuda/software_gpu/shadow.h"

namespace muster::software_gpu {

class DeviceMemory {
 public:
  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void set_limit(size_t bytes) { limit_ = bytes; }
  size_t limit() const { return limit_; }
  size_t free_bytes() const;
  // Returns null if memory is exhausted.
  void* Allocate(size_t bytes);
  // Returns false if nothing is allocated there.
  bool Free(void* address);

  // For other processes: how to open an allocation. The path leads to this process's memory.
  struct Shared {
    char path[40];
    size_t offset, bytes;
  };
  Shared Share(const void* address) const;
  // Maps memory that another process shares, like an allocation. Returns null if it is gone.
  void* OpenShared(const Shared& shared);
  bool CloseShared(void* address);

  bool Contains(const void* address) const { return Offset(address) < kReserved; }
  bool IsAllocated(const void* address, size_t bytes) const;
  // "byte 20 of an allocation of 64 bytes".
  std::string Describe(const void* address) const;
  std::map<uintptr_t, size_t> allocations() const;

  // The address at which the copy engine accesses a device address.
  template <typename T>
  T* Alias(T* address) const {
    using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
    return reinterpret_cast<T*>(reinterpret_cast<Byte*>(alias_ + Offset(address)));
  }
  // Converts between a device address and its offset.
  size_t Offset(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(base_);
  }
  const void* AddressOf(size_t offset) const { return base_ + offset; }
  // The shadow state, indexed by offset.
  Shadow& shadow() const { return shadow_; }

  // Makes device addresses accessible while a kernel runs.
  void Open();
  void Close();

 private:
  static constexpr size_t kReserved = size_t{16} << 30;

  struct Span {
    size_t begin, end;  // whole pages
  };
  void Protect(const Span& span, int protection);
  void GiveBack();
  // Finds space and registers an allocation.
  char* Place(size_t bytes);
  bool Remove(void* address);
  // Maps a span to a file, at both addresses.
  void Map(const Span& span, int file, size_t offset);

  int file_ = -1;
  char* base_ = nullptr;
  char* alias_ = nullptr;
  mutable Shadow shadow_{kReserved};

  mutable std::mutex mutex_;
  size_t limit_ = 0;
  size_t used_ = 0;
  size_t next_ = 0;               // where the search for free space starts
  std::vector<Span> open_spans_;  // currently accessible
  int open_ = 0;
  std::map<uintptr_t, size_t> allocations_;
  std::set<uintptr_t> of_others_;                   // opened allocations of other processes
  std::deque<std::pair<uintptr_t, size_t>> freed_;  // the last ones
  std::vector<Span> to_give_back_;
  size_t bytes_to_give_back_ = 0;
};

// Explains an access of the host to device memory before the process dies of it. `memory` must stay
// valid until StopExplaining, after which this code may be unloaded.
void ExplainHostAccess(const DeviceMemory* memory);
void StopExplaining();

}  // namespace muster::software_gpu
