// What is known of the shared memory of the block that runs.
//
// Shared variables are thread-local ones of the stream's thread (language.h), and dynamic shared
// memory is the block runner's: regions, with who wrote and read each word since the block began.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

namespace muster::software_gpu {

// Owner and thread: the thread of a stream.
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
    Region* region = nullptr;  // null: no shared memory
    size_t offset = 0;
  };

  // The dynamic part. Empty: none.
  void SetDynamic(const void* begin, size_t bytes);
  Place Find(const void* address);
  // Whether it is in a part of a program or library that nobody may write: constants.
  bool IsConstant(const void* address);

 private:
  Region* Search(uintptr_t at);
  void FindModules();

  std::list<Region> variables_;  // of each loaded module
  std::list<Region> dynamic_;    // none or one
  Region* last_ = nullptr;
  std::vector<std::pair<uintptr_t, size_t>> constants_;
};

}  // namespace muster::software_gpu
