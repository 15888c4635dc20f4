#include "tests/cuda/software_gpu/device_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "common/base/error.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

// The alignment that cudaMalloc guarantees. Addresses here have no larger one.
constexpr size_t kAlignment = 256;
// The minimum distance between two allocations.
constexpr size_t kGap = kPage;
constexpr size_t kRemembered = 10000;
// The amount of freed memory whose return to the system is deferred.
constexpr size_t kKept = 4 << 20;
// Allocations within this distance are treated as neighbours.
constexpr size_t kNear = 256 << 10;

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

char* Reserve(size_t bytes, int protection, int flags, int file) {
  void* const at = mmap(nullptr, bytes, protection, flags | MAP_NORESERVE, file, 0);
  MUSTER_CHECK(at != MAP_FAILED);
  return static_cast<char*>(at);
}

const DeviceMemory* guarded = nullptr;
struct sigaction before;  // the previous handler

// The process dies anyway, so calls that are unsafe in a handler can at worst lose the message.
void OnFault(int signal, siginfo_t* info, void* context) {
  if (guarded->Contains(info->si_addr)) {
    ReportViolation("the host touches device memory: " + guarded->Describe(info->si_addr));
  }
  sigaction(signal, &before, nullptr);
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  }
  // Otherwise the access is repeated, and the process dies as it would have without this handler.
}

}  // namespace

DeviceMemory::DeviceMemory() {
  const int file = memfd_create("software_gpu", MFD_CLOEXEC);
  MUSTER_CHECK(file >= 0 && ftruncate(file, kReserved) == 0);
  base_ = Reserve(kReserved, PROT_NONE, MAP_SHARED, file);
  alias_ = Reserve(kReserved, PROT_READ | PROT_WRITE, MAP_SHARED, file);
  close(file);
}

size_t DeviceMemory::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return limit_ - used_;
}

void* DeviceMemory::Allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_ - used_) return nullptr;
  // Maps whole pages. Uses an odd multiple of the alignment, so that programs cannot rely on more.
  const size_t span = RoundUp(bytes + kAlignment, kGap) + kGap;
  if (span > kReserved) return nullptr;
  if (next_ + span > kReserved) {
    next_ = 0;
    GiveBack();
  }
  for (const auto& [address, size] : allocations_) {
    const size_t begin = address - reinterpret_cast<uintptr_t>(base_);
    if (begin < next_ + span && next_ < begin + size + kGap) {
      next_ = RoundUp(begin + size, kGap) + kGap;
    }
  }
  if (next_ + span > kReserved) return nullptr;
  char* const at = base_ + next_ + kAlignment;
  if (open_ > 0) {
    open_spans_.push_back({next_, next_ + span});
    Protect(open_spans_.back(), PROT_READ | PROT_WRITE);
  }
  shadow_.Add(Offset(at), bytes);
  next_ += span;
  used_ += bytes;
  allocations_[reinterpret_cast<uintptr_t>(at)] = bytes;
  return at;
}

bool DeviceMemory::Free(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(address));
  if (found == allocations_.end()) return false;
  const size_t bytes = found->second;
  // kGap ensures that no other allocation shares these pages.
  const Span span = {Offset(address) / kGap * kGap, RoundUp(Offset(address) + bytes, kGap)};
  to_give_back_.push_back(span);
  bytes_to_give_back_ += span.end - span.begin;
  if (bytes_to_give_back_ > kKept) GiveBack();
  shadow_.Remove(Offset(address), bytes);
  used_ -= bytes;
  freed_.emplace_back(found->first, bytes);
  if (freed_.size() > kRemembered) freed_.pop_front();
  allocations_.erase(found);
  return true;
}

// Returns many spans at once, and merges neighbours, because each call flushes the TLBs of all
// processors.
void DeviceMemory::GiveBack() {
  std::sort(to_give_back_.begin(), to_give_back_.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < to_give_back_.size();) {
    Span all = to_give_back_[i];
    for (++i; i < to_give_back_.size() && to_give_back_[i].begin <= all.end + kGap; ++i) {
      all.end = to_give_back_[i].end;
    }
    madvise(alias_ + all.begin, all.end - all.begin, MADV_REMOVE);
  }
  to_give_back_.clear();
  bytes_to_give_back_ = 0;
}

bool DeviceMemory::IsAllocated(const void* address, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  auto after = allocations_.upper_bound(begin);
  if (after == allocations_.begin()) return false;
  --after;
  return begin - after->first <= after->second && bytes <= after->second - (begin - after->first);
}

std::string DeviceMemory::Describe(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto after = allocations_.upper_bound(at);
  if (after != allocations_.begin()) {
    --after;
    const size_t offset = at - after->first;
    if (offset < after->second) {
      return fmt::format("byte {} of an allocation of {} bytes", offset, after->second);
    }
    if (offset < after->second + kGap) {
      return fmt::format("{} bytes after an allocation of {} bytes", offset - after->second,
                         after->second);
    }
  }
  for (auto freed = freed_.rbegin(); freed != freed_.rend(); ++freed) {
    if (at - freed->first < freed->second) {
      return fmt::format("byte {} of an allocation of {} bytes that was freed", at - freed->first,
                         freed->second);
    }
  }
  const auto next = allocations_.upper_bound(at);
  if (next != allocations_.end() && next->first - at < kGap) {
    return fmt::format("{} bytes before an allocation of {} bytes", next->first - at, next->second);
  }
  return fmt::format("address {}, where nothing is allocated", address);
}

std::map<uintptr_t, size_t> DeviceMemory::allocations() const {
  const std::lock_guard lock(mutex_);
  return allocations_;
}

void DeviceMemory::Protect(const Span& span, int protection) {
  MUSTER_CHECK(mprotect(base_ + span.begin, span.end - span.begin, protection) == 0);
}

// Opens only allocated spans, and merges neighbours: system calls and the pages between distant
// allocations both cost time.
void DeviceMemory::Open() {
  const std::lock_guard lock(mutex_);
  if (open_++ > 0) return;
  for (const auto& [address, bytes] : allocations_) {
    const size_t at = address - reinterpret_cast<uintptr_t>(base_);
    const Span span = {at / kGap * kGap, RoundUp(at + bytes, kGap)};
    if (open_spans_.empty() || span.begin > open_spans_.back().end + kNear) {
      open_spans_.push_back(span);
    } else {
      open_spans_.back().end = span.end;
    }
  }
  for (const Span& span : open_spans_) Protect(span, PROT_READ | PROT_WRITE);
}

void DeviceMemory::Close() {
  const std::lock_guard lock(mutex_);
  if (--open_ > 0) return;
  for (const Span& span : open_spans_) Protect(span, PROT_NONE);
  open_spans_.clear();
}

void ExplainHostAccess(const DeviceMemory* memory) {
  if (guarded != nullptr) return;
  guarded = memory;
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before);
}

void StopExplaining() {
  struct sigaction now = {};
  sigaction(SIGSEGV, nullptr, &now);
  if (now.sa_sigaction == OnFault) sigaction(SIGSEGV, &before, nullptr);
  guarded = nullptr;
}

}  // namespace muster::software_gpu
