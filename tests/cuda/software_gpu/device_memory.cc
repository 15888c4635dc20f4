#include "tests/cuda/software_gpu/device_memory.h"

#include <fcntl.h>
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
  file_ = memfd_create("software_gpu", MFD_CLOEXEC);
  MUSTER_CHECK(file_ >= 0 && ftruncate(file_, kReserved) == 0);
  base_ = Reserve(kReserved, PROT_NONE, MAP_SHARED, file_);
  alias_ = Reserve(kReserved, PROT_READ | PROT_WRITE, MAP_SHARED, file_);
}

size_t DeviceMemory::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return limit_ - used_;
}

void* DeviceMemory::Allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > limit_ - used_) return nullptr;
  char* const at = Place(bytes);
  if (at != nullptr) used_ += bytes;
  return at;
}

char* DeviceMemory::Place(size_t bytes) {
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
  allocations_[reinterpret_cast<uintptr_t>(at)] = bytes;
  return at;
}

bool DeviceMemory::Free(void* address) {
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (!allocations_.contains(at) || of_others_.contains(at)) return false;
  used_ -= allocations_.at(at);
  return Remove(address);
}

bool DeviceMemory::Remove(void* address) {
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(address));
  const size_t bytes = found->second;
  // kGap ensures that no other allocation shares these pages.
  const Span span = {Offset(address) / kGap * kGap, RoundUp(Offset(address) + bytes, kGap)};
  to_give_back_.push_back(span);
  bytes_to_give_back_ += span.end - span.begin;
  if (bytes_to_give_back_ > kKept) GiveBack();
  shadow_.Remove(Offset(address), bytes);
  freed_.emplace_back(found->first, bytes);
  if (freed_.size() > kRemembered) freed_.pop_front();
  allocations_.erase(found);
  return true;
}

DeviceMemory::Shared DeviceMemory::Share(const void* address) const {
  const std::lock_guard lock(mutex_);
  Shared shared{.path = {},
                .offset = Offset(address),
                .bytes = allocations_.at(reinterpret_cast<uintptr_t>(address))};
  fmt::format_to_n(shared.path, sizeof shared.path - 1, "/proc/{}/fd/{}", getpid(), file_);
  return shared;
}

void DeviceMemory::Map(const Span& span, int file, size_t offset) {
  const size_t bytes = span.end - span.begin;
  const auto map = [&](char* at, int protection) {
    MUSTER_CHECK(mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
                      static_cast<off_t>(offset)) == at);
  };
  map(base_ + span.begin, open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  map(alias_ + span.begin, PROT_READ | PROT_WRITE);
}

// Both processes place an allocation at the same distance from the beginning of a page.
void* DeviceMemory::OpenShared(const Shared& shared) {
  const int file = open(shared.path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  const std::lock_guard lock(mutex_);
  char* const at = Place(shared.bytes);
  if (at != nullptr) {
    const size_t begin = Offset(at) / kGap * kGap;
    Map({begin, RoundUp(Offset(at) + shared.bytes, kGap)}, file, shared.offset / kGap * kGap);
    shadow_.SetDefined(Offset(at), shared.bytes);
    of_others_.insert(reinterpret_cast<uintptr_t>(at));
  }
  close(file);
  return at;
}

bool DeviceMemory::CloseShared(void* address) {
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (of_others_.erase(at) == 0) return false;
  const size_t begin = Offset(address) / kGap * kGap;
  Map({begin, RoundUp(Offset(address) + allocations_.at(at), kGap)}, file_, begin);
  return Remove(address);
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
