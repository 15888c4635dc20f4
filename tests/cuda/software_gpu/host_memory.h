// What the driver knows of the host's memory: which of it is page-locked, and which copies are on
// their way from and to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
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
  // A copy on its way.
  struct Copy {
    uintptr_t begin;
    size_t bytes;
    bool from_host;
  };
  using CopyId = std::list<Copy>::iterator;

  // False: some of it is page-locked already.
  bool Add(const void* begin, const Region& region);
  // False: no such region. A violation, if a copy is on its way.
  bool Remove(const void* begin, bool allocated);
  // The region that holds all of this; null: there is none.
  const Region* Find(const void* begin, size_t bytes) const;
  std::vector<std::string> Leaks() const;

  CopyId BeginCopy(const void* host, size_t bytes, bool from_host);
  void EndCopy(CopyId copy);
  // Whether a copy on its way reads any of this.
  bool IsRead(const void* begin, size_t bytes) const;

 private:
  bool IsTouched(uintptr_t begin, size_t bytes, bool only_read) const;

  mutable std::mutex mutex_;
  std::map<uintptr_t, Region> regions_;
  std::list<Copy> copies_;
};

}  // namespace muster::software_gpu
