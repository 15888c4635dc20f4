#include "tests/cuda/software_gpu/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/cuda/software_gpu/block_runner.h"
#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

// A word's last writer or reader, in 64 bits:
//   4 which of its bytes | 1 atomic | 11 lane | 6 warp epoch | 5 slot | 37 segment.
// 0: nobody.
constexpr int kSegmentBits = 37;
constexpr int kSlotBits = 5;
constexpr int kEpochBits = 6;
constexpr int kLaneBits = 11;
constexpr uint32_t kManyLanes = (1u << kLaneBits) - 1;
constexpr uint32_t kManyBlocks = kManyLanes - 1;
constexpr uint32_t kLastEpoch = (1u << kEpochBits) - 1;
static_assert(kMaxStreams <= 1 << kSlotBits);

constexpr uint64_t kSegmentMask = (uint64_t{1} << kSegmentBits) - 1;
constexpr int kSlotAt = kSegmentBits;
constexpr int kEpochAt = kSlotAt + kSlotBits;
constexpr int kLaneAt = kEpochAt + kEpochBits;
constexpr int kAtomicAt = kLaneAt + kLaneBits;
constexpr int kBytesAt = kAtomicAt + 1;

uint64_t Pack(const Accessor& who, AccessKind kind, uint32_t bytes_mask) {
  return (who.segment & kSegmentMask) | static_cast<uint64_t>(who.work->slot) << kSlotAt |
         static_cast<uint64_t>(std::min(who.warp_epoch, kLastEpoch)) << kEpochAt |
         static_cast<uint64_t>(who.lane) << kLaneAt |
         static_cast<uint64_t>(kind == AccessKind::kAtomic) << kAtomicAt |
         static_cast<uint64_t>(bytes_mask) << kBytesAt;
}

uint64_t SegmentOf(uint64_t cell) { return cell & kSegmentMask; }
uint32_t SlotOf(uint64_t cell) { return cell >> kSlotAt & ((1u << kSlotBits) - 1); }
uint32_t EpochOf(uint64_t cell) { return cell >> kEpochAt & kLastEpoch; }
uint32_t LaneOf(uint64_t cell) { return cell >> kLaneAt & kManyLanes; }
bool IsAtomic(uint64_t cell) { return (cell >> kAtomicAt & 1) != 0; }
uint32_t BytesOf(uint64_t cell) { return static_cast<uint32_t>(cell >> kBytesAt); }

bool IsOfEarlierWork(const Accessor& who, uint64_t cell) {
  return cell == 0 || (SlotOf(cell) == static_cast<uint32_t>(who.work->slot) &&
                       SegmentOf(cell) < who.kernel_segment);
}

enum class Order { kBefore, kSame, kOtherLane, kOtherBlock, kOtherStream };

// Whether what the cell remembers is known to be done.
Order OrderOf(const Accessor& who, uint64_t cell) {
  const uint64_t segment = SegmentOf(cell);
  const uint32_t slot = SlotOf(cell);
  if (slot != static_cast<uint32_t>(who.work->slot)) {
    return segment <= who.work->clock[slot] ? Order::kBefore : Order::kOtherStream;
  }
  if (segment < who.kernel_segment) return Order::kBefore;
  if (LaneOf(cell) == kManyBlocks) return Order::kOtherBlock;
  if (segment < who.block_segment) return Order::kOtherBlock;
  if (segment < who.segment) return Order::kBefore;
  if (LaneOf(cell) == who.lane) return Order::kSame;
  const bool same_warp = LaneOf(cell) != kManyLanes && LaneOf(cell) / kWarp == who.lane / kWarp;
  const uint32_t epoch = std::min(who.warp_epoch, kLastEpoch);
  if (same_warp && (EpochOf(cell) < epoch || epoch == kLastEpoch)) return Order::kBefore;
  return Order::kOtherLane;
}

// Of several readers that nothing orders it is remembered that there were several.
uint64_t WithEarlierReaders(const Accessor& who, uint64_t self, uint64_t read) {
  const uint64_t segment = SegmentOf(read);
  if (SlotOf(read) != SlotOf(self) || segment < who.kernel_segment || LaneOf(read) == who.lane) {
    return self;
  }
  // Neighbours that each read a part of the word: the cell remembers the last of them, rather than
  // take each for a reader of all of it.
  if ((BytesOf(read) & BytesOf(self)) == 0) return self;
  uint64_t lane = kManyLanes;
  if (segment < who.block_segment || LaneOf(read) == kManyBlocks) {
    lane = kManyBlocks;
  } else if (segment < who.segment) {
    return self;  // before the last barrier
  }
  const uint64_t without = self & ~(uint64_t{kManyLanes} << kLaneAt);
  return without | lane << kLaneAt | uint64_t{BytesOf(read)} << kBytesAt;
}

bool IsOrdered(Order order) { return order == Order::kBefore || order == Order::kSame; }

bool Report(const Work& work, const char* does, const void* at, const std::string& what) {
  ReportViolation(
      fmt::format("{} {} {}: {}", work.name, does, Device::Get().memory().Describe(at), what));
  // What follows would compute with what it may not have.
  Device::Get().Fail(cudaErrorIllegalAddress);
  return false;
}

// Of work that is no kernel: whether what the cell remembers is known to be done. It is of the same
// stream, or the work's clock says so.
bool IsDone(const Work& work, uint64_t cell) {
  const uint32_t slot = SlotOf(cell);
  return slot == static_cast<uint32_t>(work.slot) || SegmentOf(cell) <= work.clock[slot];
}

// How many of these whole words, from the first one on, work that is no kernel may read or write,
// as TouchWord has it. It then has.
size_t TouchWholeWords(const Accessor& who, AccessKind kind, uint64_t* writers, uint64_t* readers,
                       size_t words) {
  const Work& work = *who.work;
  const uint64_t self = Pack(who, kind, 0xf);
  for (size_t i = 0; i < words; ++i) {
    const uint64_t written = __atomic_load_n(&writers[i], __ATOMIC_RELAXED);
    if (written != 0 && !IsDone(work, written)) return i;
    if (kind == AccessKind::kRead) {
      __atomic_store_n(&readers[i], self, __ATOMIC_RELAXED);
      continue;
    }
    const uint64_t read = __atomic_load_n(&readers[i], __ATOMIC_RELAXED);
    if (read != 0 && !IsDone(work, read)) return i;
    __atomic_store_n(&writers[i], self, __ATOMIC_RELAXED);
  }
  return words;
}

bool TouchRange(const Work& work, const void* begin, size_t bytes, AccessKind kind) {
  const char* const does = kind == AccessKind::kRead ? "reads" : "writes";
  const DeviceMemory& memory = Device::Get().memory();
  if (!memory.IsAllocated(begin, bytes)) {
    return Report(work, does, begin,
                  fmt::format("{} bytes from there are not all of one allocation", bytes));
  }
  const Accessor who = {&work, work.segment, work.segment, work.segment};
  const auto first = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t end = first + bytes;
  for (uintptr_t at = first; at < end; at = (at & ~uintptr_t{3}) + 4) {
    const void* address = reinterpret_cast<const void*>(at);
    if (at % 4 == 0 && end - at >= 4) {
      const size_t words = (end - at) / 4;
      const size_t touched =
          TouchWholeWords(who, kind, memory.Writer(address), memory.Reader(address), words);
      at += touched * 4;
      if (at == end) break;
      address = reinterpret_cast<const void*>(at);
    }
    const Collision with =
        TouchWord(who, kind, BytesInWord(at, end), memory.Writer(address), memory.Reader(address));
    if (with.did != nullptr) return Report(work, does, address, Describe(who, with));
  }
  return true;
}

}  // namespace

uint32_t BytesInWord(uintptr_t at, uintptr_t end) {
  const uintptr_t word = at & ~uintptr_t{3};
  const auto first = static_cast<uint32_t>(at - word);
  const auto last = static_cast<uint32_t>(std::min<uintptr_t>(end - word, 4));
  return (0xfu >> (4 - (last - first))) << first;
}

Collision TouchWord(const Accessor& who, AccessKind kind, uint32_t bytes_mask, uint64_t* writer,
                    uint64_t* reader) {
  const uint64_t self = Pack(who, kind, bytes_mask);
  const uint64_t written = __atomic_load_n(writer, __ATOMIC_RELAXED);
  const uint64_t read = __atomic_load_n(reader, __ATOMIC_RELAXED);
  // Most words were last used by earlier work of this stream, or by nobody.
  if (IsOfEarlierWork(who, written) && IsOfEarlierWork(who, read)) {
    __atomic_store_n(kind == AccessKind::kRead ? reader : writer, self, __ATOMIC_RELAXED);
    return {};
  }
  if ((BytesOf(written) & bytes_mask) != 0 && !(kind == AccessKind::kAtomic && IsAtomic(written))) {
    if (!IsOrdered(OrderOf(who, written))) return {"wrote", written};
  }
  if (kind == AccessKind::kRead) {
    __atomic_store_n(reader, WithEarlierReaders(who, self, read), __ATOMIC_RELAXED);
    return {};
  }
  if ((BytesOf(read) & bytes_mask) != 0) {
    if (!IsOrdered(OrderOf(who, read))) return {"read", read};
  }
  __atomic_store_n(writer, self, __ATOMIC_RELAXED);
  return {};
}

std::string Describe(const Accessor& who, const Collision& collision) {
  const auto& [did, cell] = collision;
  switch (OrderOf(who, cell)) {
    case Order::kOtherLane:
      return LaneOf(cell) == kManyLanes
                 ? fmt::format("other threads of the block {} it, without a barrier between", did)
                 : fmt::format("thread {} of the block {} it, without a barrier between",
                               LaneOf(cell), did);
    case Order::kOtherBlock:
      return fmt::format("another block of the kernel {} it", did);
    default: {
      Stream* const stream = Device::Get().InSlot(static_cast<int>(SlotOf(cell)));
      return fmt::format(
          "{} {} it on another stream, and no event says that this is done",
          stream != nullptr ? stream->DescribeSegment(SegmentOf(cell)) : "work that is done", did);
    }
  }
}

bool ReadRange(const Work& work, const void* begin, size_t bytes, Undefined undefined) {
  if (bytes == 0) return true;
  if (!TouchRange(work, begin, bytes, AccessKind::kRead)) return false;
  if (undefined == Undefined::kAllowed) return true;
  const uint8_t* const state = Device::Get().memory().State(begin);
  const void* const found = std::memchr(state, kUndefined, bytes);
  if (found == nullptr) return true;
  const auto offset = static_cast<const uint8_t*>(found) - state;
  return Report(work, "reads", static_cast<const char*>(begin) + offset, "nobody has written it");
}

bool WriteRange(const Work& work, void* begin, size_t bytes) {
  if (bytes == 0) return true;
  if (!TouchRange(work, begin, bytes, AccessKind::kWrite)) return false;
  std::memset(Device::Get().memory().State(begin), kDefined, bytes);
  return true;
}

}  // namespace muster::software_gpu
