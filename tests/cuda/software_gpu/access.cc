#include "tests/cuda/software_gpu/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/cuda/software_gpu/block_runner.h"
#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

uint32_t LaneOf(uint64_t cell) { return cell >> kLaneAt & kManyLanes; }
uint32_t BytesOf(uint64_t cell) { return static_cast<uint32_t>(cell >> kBytesAt); }

enum class Order { kBefore, kSame, kOtherLane, kOtherBlock, kOtherStream };

// Whether the access in the cell is known to be done.
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
  return LaneOf(cell) == who.lane ? Order::kSame : Order::kOtherLane;
}

// Several unordered readers are stored as one value that means several.
uint64_t WithEarlierReaders(const Accessor& who, uint64_t self, uint64_t read) {
  const uint64_t segment = SegmentOf(read);
  if (SlotOf(read) != SlotOf(self) || segment < who.kernel_segment || LaneOf(read) == who.lane) {
    return self;
  }
  // Neighbours each read a part of the word. The cell keeps the last one, because merging would
  // count each as a reader of all bytes.
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
  // Fail the device, so that nothing computes with the invalid data.
  Device::Get().Fail(cudaErrorIllegalAddress);
  return false;
}

// Checks work other than kernels on a range of device memory.
class RangeAccess {
 public:
  RangeAccess(const Work& work, AccessKind kind, Undefined undefined)
      : work_(work),
        kind_(kind),
        refuses_undefined_(kind == AccessKind::kRead && undefined == Undefined::kRefused),
        who_{&work, work.segment, work.segment, work.segment},
        self_(Pack(who_, 0xf)) {}

  bool Touch(const void* begin, size_t bytes) {
    if (!memory_.IsAllocated(begin, bytes)) {
      return Refuse(memory_.Offset(begin),
                    fmt::format("{} bytes from there are not all of one allocation", bytes));
    }
    bool good = true;
    ForPages(memory_.Offset(begin), bytes,
             [&](size_t offset, size_t part) { good = good && TouchPart(offset, part); });
    return good;
  }

 private:
  bool Refuse(size_t offset, const std::string& what) const {
    return Report(work_, kind_ == AccessKind::kRead ? "reads" : "writes", memory_.AddressOf(offset),
                  what);
  }
  bool RefuseUndefined(size_t offset) const { return Refuse(offset, "it was never written"); }

  // The bytes lie in one page.
  bool TouchPart(size_t offset, size_t bytes) const {
    Shadow& shadow = memory_.shadow();
    ShadowPage& page = shadow.PageOf(offset);
    const PageLock lock(page);
    const bool whole = page.IsWithin(offset % kPage, offset % kPage + bytes);
    if (whole && !page.in_words.load(std::memory_order_relaxed)) {
      const Collision with = TouchWord(who_, kind_, 0xf, &page.writer, &page.reader);
      if (with.did != nullptr) return Refuse(offset, Describe(who_, with));
      if (refuses_undefined_ && page.state != kDefined) return RefuseUndefined(offset);
      if (kind_ == AccessKind::kWrite) page.state = kDefined;
      return true;
    }
    PageWords& words = shadow.SplitLocked(page);
    if (!TouchWords(words, offset, bytes)) return false;
    uint8_t* const states = words.states.data() + offset % kPage;
    if (refuses_undefined_) {
      const void* const found = std::memchr(states, kUndefined, bytes);
      if (found == nullptr) return true;
      return RefuseUndefined(offset +
                             static_cast<size_t>(static_cast<const uint8_t*>(found) - states));
    }
    if (kind_ != AccessKind::kWrite) return true;
    if (whole) {  // All readers and writers of parts are known to be done.
      page.writer = self_;
      page.reader = 0;
      page.state = kDefined;
      page.in_words.store(false, std::memory_order_release);
    } else {
      std::memset(states, kDefined, bytes);
    }
    return true;
  }

  bool TouchWords(PageWords& words, size_t offset, size_t bytes) const {
    const size_t end = offset + bytes;
    for (size_t at = offset; at < end; at = at / 4 * 4 + 4) {
      if (at % 4 == 0 && end - at >= 4) {
        at += TouchWholeWords(words, at % kPage / 4, (end - at) / 4) * 4;
        if (at == end) break;
      }
      const size_t word = at % kPage / 4;
      const Collision with =
          TouchWord(who_, kind_, BytesInWord(at, end), &words.writers[word], &words.readers[word]);
      if (with.did != nullptr) return Refuse(at, Describe(who_, with));
    }
    return true;
  }

  // The number of whole words, from the first one on, that may be read or written by the rules of
  // TouchWord. Records the access to them.
  size_t TouchWholeWords(PageWords& words, size_t first, size_t count) const {
    uint64_t *const writers = &words.writers[first], *const readers = &words.readers[first];
    for (size_t i = 0; i < count; ++i) {
      const uint64_t written = __atomic_load_n(&writers[i], __ATOMIC_RELAXED);
      if (written != 0 && !IsDone(written)) return i;
      if (kind_ == AccessKind::kRead) {
        __atomic_store_n(&readers[i], self_, __ATOMIC_RELAXED);
        continue;
      }
      const uint64_t read = __atomic_load_n(&readers[i], __ATOMIC_RELAXED);
      if (read != 0 && !IsDone(read)) return i;
      __atomic_store_n(&writers[i], self_, __ATOMIC_RELAXED);
    }
    return count;
  }

  // Whether the access in the cell is known to be done: by the same stream or by the work's clock.
  bool IsDone(uint64_t cell) const {
    const uint32_t slot = SlotOf(cell);
    return slot == static_cast<uint32_t>(work_.slot) || SegmentOf(cell) <= work_.clock[slot];
  }

  const DeviceMemory& memory_ = Device::Get().memory();
  const Work& work_;
  const AccessKind kind_;
  const bool refuses_undefined_;
  const Accessor who_;
  const uint64_t self_;
};

}  // namespace

Collision TouchUsedWord(const Accessor& who, AccessKind kind, uint64_t self, uint64_t* writer,
                        uint64_t* reader) {
  const uint64_t written = __atomic_load_n(writer, __ATOMIC_RELAXED);
  const uint64_t read = __atomic_load_n(reader, __ATOMIC_RELAXED);
  if ((BytesOf(written) & BytesOf(self)) != 0 && !IsOrdered(OrderOf(who, written))) {
    return {"wrote", written};
  }
  if (kind == AccessKind::kRead) {
    __atomic_store_n(reader, WithEarlierReaders(who, self, read), __ATOMIC_RELAXED);
    return {};
  }
  if ((BytesOf(read) & BytesOf(self)) != 0 && !IsOrdered(OrderOf(who, read))) {
    return {"read", read};
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
          "{} {} it on another stream, and no event orders them",
          stream != nullptr ? stream->DescribeSegment(SegmentOf(cell)) : "earlier work", did);
    }
  }
}

bool ReadRange(const Work& work, const void* begin, size_t bytes, Undefined undefined) {
  return bytes == 0 || RangeAccess(work, AccessKind::kRead, undefined).Touch(begin, bytes);
}

bool WriteRange(const Work& work, void* begin, size_t bytes) {
  return bytes == 0 ||
         RangeAccess(work, AccessKind::kWrite, Undefined::kAllowed).Touch(begin, bytes);
}

}  // namespace muster::software_gpu
