#include "tests/cuda/software_gpu/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "common/base/error.h"

namespace muster::software_gpu {
namespace {

constexpr size_t kWordsAtATime = 64;

template <typename T>
T* MapZeros(size_t count) {
  void* const at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MUSTER_CHECK(at != MAP_FAILED);
  return static_cast<T*>(at);
}

}  // namespace

// All zeros means that nothing is allocated.
Shadow::Shadow(size_t bytes) : pages_(MapZeros<ShadowPage>(bytes / kPage)) {}

void Shadow::Add(size_t offset, size_t bytes) {
  ForPages(offset, bytes, [&](size_t at, size_t part) {
    ShadowPage& page = PageOf(at);
    page.state = kUndefined;
    page.writer = page.reader = 0;
    page.begin = static_cast<uint16_t>(at % kPage);
    page.end = static_cast<uint16_t>(at % kPage + part);
  });
}

void Shadow::SetDefined(size_t offset, size_t bytes) {
  ForPages(offset, bytes, [&](size_t at, size_t) { PageOf(at).state = kDefined; });
}

void Shadow::Remove(size_t offset, size_t bytes) {
  const std::lock_guard lock(mutex_);
  ForPages(offset, bytes, [&](size_t at, size_t) {
    ShadowPage& page = PageOf(at);
    page.state = kNotAllocated;
    page.begin = page.end = 0;
    page.in_words.store(false, std::memory_order_relaxed);
    if (page.words != nullptr) idle_.push_back(page.words);
    page.words = nullptr;
  });
}

PageWords* Shadow::TakeWords() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) {
    auto* const more = MapZeros<PageWords>(kWordsAtATime);
    for (size_t i = 0; i < kWordsAtATime; ++i) idle_.push_back(more + i);
  }
  PageWords* const taken = idle_.back();
  idle_.pop_back();
  return taken;
}

PageWords& Shadow::SplitLocked(ShadowPage& page) {
  if (page.in_words.load(std::memory_order_relaxed)) return *page.words;
  if (page.words == nullptr) page.words = TakeWords();
  PageWords& words = *page.words;
  words.writers.fill(page.writer);
  words.readers.fill(page.reader);
  words.states.fill(kNotAllocated);
  std::memset(words.states.data() + page.begin, page.state, page.end - page.begin);
  page.in_words.store(true, std::memory_order_release);
  return words;
}

PageWords* Shadow::Split(ShadowPage& page) {
  const PageLock lock(page);
  return &SplitLocked(page);
}

void Shadow::SetUndefined(size_t offset, size_t bytes) {
  ForPages(offset, bytes, [&](size_t at, size_t part) {
    ShadowPage& page = PageOf(at);
    const PageLock lock(page);
    std::memset(SplitLocked(page).states.data() + at % kPage, kUndefined, part);
  });
}

}  // namespace muster::software_gpu
