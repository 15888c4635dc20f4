// The driver's view of host memory: page-locked regions, and copies in progress from and to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace muster::software_gpu {

class HostMemory {
 public:
  struct Region {
    size_t bytes = 0;
    bool read_only = false;
    bool allocated = false;  // by cudaHostAlloc
  };

  // Returns false if part of it is page-locked already.
  bool Add(const void* begin, const Region& region);
  // Returns false without such a region. A violation if a copy is in progress.
  bool Remove(const void* begin, bool allocated);
  // The region that contains the whole range, or null.
  const Region* Find(const void* begin, size_t bytes) const;
  std::vector<std::string> Leaks() const;

  // The copy is in progress until the result is destroyed: when it is done, or is dropped because
  // the device failed.
  std::shared_ptr<void> BeginCopy(const void* host, size_t bytes, bool from_host);
  // Whether a copy in progress reads part of the range.
  bool IsRead(const void* begin, size_t bytes) const;

 private:
  struct Copy {
    uintptr_t begin;
    size_t bytes;
    bool from_host;
  };

  bool IsTouched(uintptr_t begin, size_t bytes, bool only_read) const;

  mutable std::mutex mutex_;
  std::map<uintptr_t, Region> regions_;
  std::list<Copy> copies_;
};

}  // namespace muster::software_gpu
