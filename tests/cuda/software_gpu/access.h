// Who touches device memory, and whether it may.
//
// For each word of four bytes it is known who wrote it and who read it last. Two accesses of one
// byte, one of them a write, are a race unless one of them is known to come first: by the order of
// a stream, by an event, by the host's waiting, by a barrier of the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/cuda/software_gpu/stream.h"

namespace muster::software_gpu {

inline constexpr uint32_t kWarp = 32;

enum class AccessKind { kRead, kWrite, kAtomic };

// Memory that nobody has written yet: its bytes are NaNs, and a copy passes them on.
enum class Undefined { kAllowed, kRefused };

// What copies and libraries do, before they do it: a violation if it is not allocated, or is used
// by work of another stream that is not known to be done. False after a violation.
bool ReadRange(const Work& work, const void* begin, size_t bytes, Undefined undefined);
bool WriteRange(const Work& work, void* begin, size_t bytes);

// One thread of a block that runs, or other work as a whole.
struct Accessor {
  const Work* work;
  // Segments of this kernel, of this block, and since the block's last barrier. All are the work's
  // where it is no kernel.
  uint64_t kernel_segment;
  uint64_t block_segment;
  uint64_t segment;
  uint32_t lane = 0;
  uint32_t warp_epoch = 0;  // how often its warp has synchronised since the barrier
};

// Bytes of the word that `at` is in, up to `end`, as a mask.
uint32_t BytesInWord(uintptr_t at, uintptr_t end);

// What an access collides with. Nothing: `did` is null.
struct Collision {
  const char* did = nullptr;  // "wrote" or "read"
  uint64_t cell = 0;
};

// Of bytes in one word: `reader` and `writer` are who was there last, and become this one.
Collision TouchWord(const Accessor& who, AccessKind kind, uint32_t bytes_mask, uint64_t* writer,
                    uint64_t* reader);
std::string Describe(const Accessor& who, const Collision& collision);

}  // namespace muster::software_gpu
