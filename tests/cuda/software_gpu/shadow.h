// The shadow state of device memory: the last writer and reader of each four-byte word (access.h),
// and whether each byte has been written.
//
// Most pages are used as a whole, so that a single entry describes the page. A page that is used in
// parts has an entry for each word.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace muster::software_gpu {

inline constexpr size_t kPage = 4096;

// The state of a byte.
enum ByteState : uint8_t { kNotAllocated = 0, kUndefined = 1, kDefined = 2 };

struct PageWords {
  std::array<uint64_t, kPage / 4> writers;
  std::array<uint64_t, kPage / 4> readers;
  std::array<uint8_t, kPage> states;
};

struct ShadowPage {
  std::atomic<bool> in_words;  // otherwise these three hold for all allocated bytes:
  ByteState state;
  std::atomic_flag locked;
  uint16_t begin, end;  // the allocated range; both 0 if there is none
  uint64_t writer;
  uint64_t reader;
  PageWords* words;  // null until first needed; kept until the memory is freed

  bool IsWithin(size_t first, size_t last) const { return first <= begin && end <= last; }
};

// Held while using a page as a whole or changing in_words.
class PageLock {
 public:
  explicit PageLock(ShadowPage& page) : page_(page) {
    while (page_.locked.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~PageLock() { page_.locked.clear(std::memory_order_release); }
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

 private:
  ShadowPage& page_;
};

// Shadow memory. Addresses are offsets from the beginning of device memory.
class Shadow {
 public:
  explicit Shadow(size_t bytes);
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // Marks a range as allocated and unwritten, or as free. No other allocation shares its pages, and
  // the range is not used meanwhile.
  void Add(size_t offset, size_t bytes);
  void Remove(size_t offset, size_t bytes);
  // Marks a whole allocation as written, by another process.
  void SetDefined(size_t offset, size_t bytes);

  ShadowPage& PageOf(size_t offset) { return pages_[offset / kPage]; }
  // The page's words, for an access to a part of it. Null if nothing is allocated in the page.
  PageWords* WordsOf(size_t offset) {
    ShadowPage& page = PageOf(offset);
    if (page.in_words.load(std::memory_order_acquire)) return page.words;
    return page.end == 0 ? nullptr : Split(page);
  }
  // The same for a page that is locked.
  PageWords& SplitLocked(ShadowPage& page);

  // Calls body(offset, bytes) for each unwritten stretch in the range.
  template <typename Body>
  void ForUndefined(size_t offset, size_t bytes, const Body& body);
  // Marks the range as unwritten.
  void SetUndefined(size_t offset, size_t bytes);

 private:
  PageWords* Split(ShadowPage& page);
  PageWords* TakeWords();

  ShadowPage* const pages_;
  std::mutex mutex_;
  std::vector<PageWords*> idle_;
};

// Splits a range at page boundaries and calls body(offset, bytes) for each part.
template <typename Body>
void ForPages(size_t offset, size_t bytes, const Body& body) {
  for (const size_t end = offset + bytes; offset < end;) {
    const size_t next = offset / kPage * kPage + kPage;
    const size_t part = (next < end ? next : end) - offset;
    body(offset, part);
    offset += part;
  }
}

template <typename Body>
void Shadow::ForUndefined(size_t offset, size_t bytes, const Body& body) {
  ForPages(offset, bytes, [&](size_t at, size_t part) {
    const ShadowPage& page = PageOf(at);
    if (!page.in_words.load(std::memory_order_acquire)) {
      if (page.state != kDefined) body(at, part);
      return;
    }
    const uint8_t* const states = page.words->states.data() + at % kPage;
    for (size_t i = 0; i < part;) {
      size_t next = i;
      while (next < part && states[next] != kDefined) ++next;
      if (next > i) body(at + i, next - i);
      i = next + 1;
    }
  });
}

}  // namespace muster::software_gpu
