#include "tests/cuda/software_gpu/host_memory.h"

#include <fmt/format.h>

#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {

// Whole pages are locked, so no two regions may share one.
bool HostMemory::Add(const void* begin, const Region& region) {
  constexpr uintptr_t kPage = 4096;
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const auto first = [](uintptr_t at) { return at / kPage; };
  const auto last = [](uintptr_t at, size_t bytes) { return (at + bytes - 1) / kPage; };
  for (const auto& [other, known] : regions_) {
    if (first(address) <= last(other, known.bytes) && first(other) <= last(address, region.bytes)) {
      return false;
    }
  }
  regions_[address] = region;
  return true;
}

bool HostMemory::Remove(const void* begin, bool allocated) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(reinterpret_cast<uintptr_t>(begin));
  if (found == regions_.end() || found->second.allocated != allocated) return false;
  if (IsTouched(found->first, found->second.bytes, false)) {
    ReportViolation("page-locked host memory is freed during a copy");
  }
  regions_.erase(found);
  return true;
}

const HostMemory::Region* HostMemory::Find(const void* begin, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  --after;
  const size_t offset = address - after->first;
  const Region& region = after->second;
  return offset <= region.bytes && bytes <= region.bytes - offset ? &region : nullptr;
}

std::vector<std::string> HostMemory::Leaks() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> leaks;
  for (const auto& [begin, region] : regions_) {
    leaks.push_back(fmt::format("{} of {} bytes of the host's memory",
                                region.allocated ? "cudaHostAlloc" : "cudaHostRegister",
                                region.bytes));
  }
  return leaks;
}

std::shared_ptr<void> HostMemory::BeginCopy(const void* host, size_t bytes, bool from_host) {
  const std::lock_guard lock(mutex_);
  const auto copy =
      copies_.insert(copies_.end(), {reinterpret_cast<uintptr_t>(host), bytes, from_host});
  return {&*copy, [this, copy](void*) {
            const std::lock_guard lock_again(mutex_);
            copies_.erase(copy);
          }};
}

bool HostMemory::IsRead(const void* begin, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return IsTouched(reinterpret_cast<uintptr_t>(begin), bytes, true);
}

bool HostMemory::IsTouched(uintptr_t begin, size_t bytes, bool only_read) const {
  for (const Copy& copy : copies_) {
    if (only_read && !copy.from_host) continue;
    if (copy.begin < begin + bytes && begin < copy.begin + copy.bytes) return true;
  }
  return false;
}

}  // namespace muster::software_gpu
