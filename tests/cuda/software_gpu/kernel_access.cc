// Checks the memory accesses of a block's threads.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/cuda/software_gpu/block_runner.h"
#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

const char* Verb(AccessKind kind) { return kind == AccessKind::kRead ? "reads" : "writes"; }

// Fast path: most accesses are 1 to 16 defined bytes.
bool IsAllDefined(const uint8_t* states, size_t bytes) {
  uint8_t wrong = 0;
  for (size_t i = 0; i < bytes; ++i) wrong |= states[i] ^ kDefined;
  return wrong == 0;
}

}  // namespace

void BlockRunner::Touch(const void* address, size_t bytes, AccessKind kind, const void* code) {
  if (memory_.Contains(address)) return TouchDevice(address, bytes, kind, code);
  if (current_->fiber->HasOnStack(address)) return;
  const SharedMemory::Place place = shared_.Find(address);
  if (place.region != nullptr) return TouchShared(place, bytes, kind, code);
  if (kind == AccessKind::kRead && shared_.IsConstant(address)) return;
  const bool of_another = std::any_of(fibers_.begin(), fibers_.end(),
                                      [&](const auto& f) { return f->HasOnStack(address); });
  Abandon(fmt::format("{} {} {} bytes of {}", DescribeCode(code), Verb(kind), bytes,
                      of_another ? "another thread's local memory" : "the host's memory"));
}

void BlockRunner::TouchDevice(const void* address, size_t bytes, AccessKind kind,
                              const void* code) {
  bool good = true;
  ForPages(memory_.Offset(address), bytes,
           [&](size_t offset, size_t part) { good = good && TouchPage(offset, part, kind, code); });
}

// Records an access within one page. Returns false after a violation.
bool BlockRunner::TouchPage(size_t offset, size_t bytes, AccessKind kind, const void* code) {
  const auto refuse = [&](size_t at, const std::string& what) {
    const std::string where = memory_.Describe(memory_.AddressOf(at));
    Abandon(fmt::format("{} {} {}: {}", DescribeCode(code), Verb(kind), where, what));
    return false;
  };
  PageWords* const words = memory_.shadow().WordsOf(offset);
  if (words == nullptr) return refuse(offset, "it is partly unallocated");
  uint8_t* const states = words->states.data() + offset % kPage;
  const bool defined = IsAllDefined(states, bytes);
  if (!defined) {
    if (std::memchr(states, kNotAllocated, bytes) != nullptr) {
      return refuse(offset, "it is partly unallocated");
    }
    if (kind != AccessKind::kWrite) {
      const auto* const first = static_cast<uint8_t*>(std::memchr(states, kUndefined, bytes));
      return refuse(offset + static_cast<size_t>(first - states), "it was never written");
    }
  }
  const size_t end = offset + bytes;
  for (size_t at = offset; at < end; at = at / 4 * 4 + 4) {
    const size_t word = at % kPage / 4;
    const Collision with =
        TouchWord(who_, kind, BytesInWord(at, end), &words->writers[word], &words->readers[word]);
    if (with.did != nullptr) return refuse(at, Describe(who_, with));
  }
  if (!defined) std::memset(states, kDefined, bytes);
  return true;
}

void BlockRunner::TouchShared(const SharedMemory::Place& place, size_t bytes, AccessKind kind,
                              const void* code) {
  SharedMemory::Region& region = *place.region;
  const auto refuse = [&](const std::string& what) {
    Abandon(fmt::format("{} {} shared memory: {}", DescribeCode(code), Verb(kind), what));
  };
  if (bytes > region.bytes - place.offset) return refuse("beyond its end");
  for (size_t i = place.offset; i < place.offset + bytes; ++i) {
    if (kind != AccessKind::kWrite && region.written_in[i] != who_.block_segment) {
      return refuse("this block has not written it");
    }
    region.written_in[i] = who_.block_segment;
  }
  // Accesses by other blocks do not matter here.
  Accessor who = who_;
  who.kernel_segment = who.block_segment;
  const uintptr_t first = region.begin + place.offset;
  const uintptr_t end = first + bytes;
  for (uintptr_t at = first; at < end; at = (at & ~uintptr_t{3}) + 4) {
    const size_t word = at / 4 - region.begin / 4;
    const Collision with =
        TouchWord(who, kind, BytesInWord(at, end), &region.writers[word], &region.readers[word]);
    if (with.did != nullptr) return refuse(Describe(who, with));
  }
}

}  // namespace muster::software_gpu
