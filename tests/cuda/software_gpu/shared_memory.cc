#include "tests/cuda/software_gpu/shared_memory.h"

#include <link.h>

#include <algorithm>

namespace muster::software_gpu {
namespace {

struct Modules {
  std::vector<std::pair<uintptr_t, size_t>> thread_locals;
  std::vector<std::pair<uintptr_t, size_t>> constants;
};

int AddModule(dl_phdr_info* info, size_t, void* to) {
  auto& modules = *static_cast<Modules*>(to);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_TLS && info->dlpi_tls_data != nullptr) {
      modules.thread_locals.emplace_back(reinterpret_cast<uintptr_t>(info->dlpi_tls_data),
                                         part.p_memsz);
    } else if (part.p_type == PT_GNU_RELRO || (part.p_type == PT_LOAD && !(part.p_flags & PF_W))) {
      modules.constants.emplace_back(begin, part.p_memsz);
    }
  }
  return 0;
}

}  // namespace

SharedMemory::Region::Region(uintptr_t region, size_t size)
    : begin(region), bytes(size), writers(size / 4 + 2), readers(size / 4 + 2), written_in(size) {}

SharedMemory::Region* SharedMemory::Search(uintptr_t at) {
  for (Region& region : variables_) {
    if (at - region.begin < region.bytes) return &region;
  }
  return nullptr;
}

SharedMemory::Place SharedMemory::Find(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (last_ == nullptr || at - last_->begin >= last_->bytes) {
    last_ = Search(at);
    if (last_ == nullptr) {
      // A thread's copies of a library's variables exist from its first access on.
      FindModules();
      last_ = Search(at);
    }
  }
  if (last_ == nullptr) return {};
  return {last_, at - last_->begin};
}

bool SharedMemory::IsConstant(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return std::any_of(constants_.begin(), constants_.end(),
                     [&](const auto& part) { return at - part.first < part.second; });
}

void SharedMemory::FindModules() {
  Modules modules;
  dl_iterate_phdr(AddModule, &modules);
  constants_ = modules.constants;
  for (const auto& [begin, bytes] : modules.thread_locals) {
    if (Search(begin) == nullptr) variables_.emplace_back(begin, bytes);
  }
}

}  // namespace muster::software_gpu
