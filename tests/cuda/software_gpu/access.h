// Checks each access to device memory.
//
// The last writer and the last reader of each word of four bytes are stored. Two accesses to one
// byte, one of them a write, are a race unless something orders them: a stream, an event, a wait of
// the host, or a barrier of the block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/cuda/software_gpu/stream.h"

namespace muster::software_gpu {

enum class AccessKind { kRead, kWrite };

// Whether memory that was never written may be read. Its bytes are NaNs, and copies pass them on.
enum class Undefined { kAllowed, kRefused };

// Checks an access by copies and libraries in advance. Memory that is not allocated, or in use by
// unfinished work of another stream, is a violation. Returns false after a violation.
bool ReadRange(const Work& work, const void* begin, size_t bytes, Undefined undefined);
bool WriteRange(const Work& work, void* begin, size_t bytes);

// One thread of a running block, or a whole piece of other work.
struct Accessor {
  const Work* work;
  // The first segments of this kernel, of this block, and after the block's last barrier. All equal
  // the work's segment if it is not a kernel.
  uint64_t kernel_segment;
  uint64_t block_segment;
  uint64_t segment;
  uint32_t lane = 0;
};

// A word's last writer or reader, packed into 64 bits:
//   4 accessed bytes | 11 lane | 5 slot | 44 segment.
// 0: none.
inline constexpr int kSegmentBits = 44;
inline constexpr int kSlotBits = 5;
inline constexpr int kLaneBits = 11;
inline constexpr uint32_t kManyLanes = (1u << kLaneBits) - 1;
inline constexpr uint32_t kManyBlocks = kManyLanes - 1;
static_assert(kMaxStreams <= 1 << kSlotBits);

inline constexpr uint64_t kSegmentMask = (uint64_t{1} << kSegmentBits) - 1;
inline constexpr int kSlotAt = kSegmentBits;
inline constexpr int kLaneAt = kSlotAt + kSlotBits;
inline constexpr int kBytesAt = kLaneAt + kLaneBits;

inline uint64_t Pack(const Accessor& who, uint32_t bytes_mask) {
  return (who.segment & kSegmentMask) | static_cast<uint64_t>(who.work->slot) << kSlotAt |
         static_cast<uint64_t>(who.lane) << kLaneAt | static_cast<uint64_t>(bytes_mask) << kBytesAt;
}
inline uint64_t SegmentOf(uint64_t cell) { return cell & kSegmentMask; }
inline uint32_t SlotOf(uint64_t cell) {
  return static_cast<uint32_t>(cell >> kSlotAt) & ((1u << kSlotBits) - 1);
}

// The mask of the bytes from `at` up to `end` within the word of `at`.
inline uint32_t BytesInWord(uintptr_t at, uintptr_t end) {
  const uintptr_t word = at & ~uintptr_t{3};
  const auto first = static_cast<uint32_t>(at - word);
  const auto last = static_cast<uint32_t>(std::min<uintptr_t>(end - word, 4));
  return (0xfu >> (4 - (last - first))) << first;
}

// The conflicting access. `did` is null if there is none.
struct Collision {
  const char* did = nullptr;  // "wrote" or "read"
  uint64_t cell = 0;
};

// The slow path of TouchWord, if an earlier user of the word may not be done.
Collision TouchUsedWord(const Accessor& who, AccessKind kind, uint64_t self, uint64_t* writer,
                        uint64_t* reader);

// Touches bytes in one word. `reader` and `writer` are its last ones, and are updated.
inline Collision TouchWord(const Accessor& who, AccessKind kind, uint32_t bytes_mask,
                           uint64_t* writer, uint64_t* reader) {
  const uint64_t self = Pack(who, bytes_mask);
  // The common case: the word is unused, or was last used by earlier work of this stream.
  const auto is_of_earlier_work = [&](uint64_t cell) {
    return cell == 0 || (SlotOf(cell) == static_cast<uint32_t>(who.work->slot) &&
                         SegmentOf(cell) < who.kernel_segment);
  };
  if (!is_of_earlier_work(__atomic_load_n(writer, __ATOMIC_RELAXED)) ||
      !is_of_earlier_work(__atomic_load_n(reader, __ATOMIC_RELAXED))) {
    return TouchUsedWord(who, kind, self, writer, reader);
  }
  __atomic_store_n(kind == AccessKind::kRead ? reader : writer, self, __ATOMIC_RELAXED);
  return {};
}
std::string Describe(const Accessor& who, const Collision& collision);

}  // namespace muster::software_gpu
