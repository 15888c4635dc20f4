// The shadow state of the running block's shared memory.
//
// Shared variables are thread-local variables of the stream's thread (language.h): regions with the
// last writer and reader of each word since the block began.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

namespace muster::software_gpu {

// Owned and used by the thread of a stream.
class SharedMemory {
 public:
  struct Region {
    Region(uintptr_t begin, size_t bytes);
    uintptr_t begin;
    size_t bytes;
    std::vector<uint64_t> writers;     // of each word
    std::vector<uint64_t> readers;     // of each word
    std::vector<uint64_t> written_in;  // of each byte: the block's segment
  };
  struct Place {
    Region* region = nullptr;  // null if it is not shared memory
    size_t offset = 0;
  };

  Place Find(const void* address);
  // Whether the address is in a read-only part of a program or library.
  bool IsConstant(const void* address);

 private:
  Region* Search(uintptr_t at);
  void FindModules();

  std::list<Region> variables_;  // of each loaded module
  Region* last_ = nullptr;
  std::vector<std::pair<uintptr_t, size_t>> constants_;
};

}  // namespace muster::software_gpu
