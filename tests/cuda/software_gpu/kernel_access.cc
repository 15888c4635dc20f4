// What a thread of a block touches, and whether it may.
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

// Most accesses are of one to sixteen bytes that are.
bool IsAllDefined(const uint8_t* state, size_t bytes) {
  uint8_t wrong = 0;
  for (size_t i = 0; i < bytes; ++i) wrong |= state[i] ^ kDefined;
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
  const DeviceMemory& memory = memory_;
  const auto refuse = [&](const void* at, const std::string& what) {
    Abandon(fmt::format("{} {} {}: {}", DescribeCode(code), Verb(kind), memory.Describe(at), what));
  };
  uint8_t* const state = memory.State(address);
  const bool defined = IsAllDefined(state, bytes);
  if (!defined) {
    if (!memory.IsAllocated(address, bytes)) return refuse(address, "not all of it is allocated");
    const auto* const undefined = static_cast<uint8_t*>(std::memchr(state, kUndefined, bytes));
    if (kind != AccessKind::kWrite) {
      return refuse(static_cast<const char*>(address) + (undefined - state),
                    "nobody has written it");
    }
  }
  const Accessor who = {.work = work_,
                        .kernel_segment = work_->segment,
                        .block_segment = block_segment_,
                        .segment = segment_,
                        .lane = current_->number,
                        .warp_epoch = current_->warp_epoch};
  const auto first = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = first + bytes;
  for (uintptr_t at = first; at < end; at = (at & ~uintptr_t{3}) + 4) {
    const void* const word = reinterpret_cast<const void*>(at);
    const Collision with =
        TouchWord(who, kind, BytesInWord(at, end), memory.Writer(word), memory.Reader(word));
    if (with.did != nullptr) return refuse(word, Describe(who, with));
  }
  if (!defined) std::memset(state, kDefined, bytes);
}

void BlockRunner::TouchShared(const SharedMemory::Place& place, size_t bytes, AccessKind kind,
                              const void* code) {
  SharedMemory::Region& region = *place.region;
  const auto refuse = [&](const std::string& what) {
    Abandon(fmt::format("{} {} shared memory: {}", DescribeCode(code), Verb(kind), what));
  };
  if (bytes > region.bytes - place.offset) return refuse("behind its end");
  for (size_t i = place.offset; i < place.offset + bytes; ++i) {
    if (kind != AccessKind::kWrite && region.written_in[i] != block_segment_) {
      return refuse("nobody of this block has written it");
    }
    region.written_in[i] = block_segment_;
  }
  // What other blocks did there is of no interest.
  const Accessor who = {.work = work_,
                        .kernel_segment = block_segment_,
                        .block_segment = block_segment_,
                        .segment = segment_,
                        .lane = current_->number,
                        .warp_epoch = current_->warp_epoch};
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
