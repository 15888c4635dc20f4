// Where gradients are rounded to 16 bits on their way: a few buffers that are used again and again,
// so that what ZeroMQ's thread reads is still in the cache, and never the size of a model.
//
// One thread takes; any thread gives back. A buffer must not be given back twice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "common/base/fd.h"
#include "common/base/memory.h"
#include "common/link/link.h"

namespace muster {

class WireBuffers {
 public:
  class Buffer {
   public:
    Buffer(WireBuffers& owner, size_t values) : owner_(owner), values_(values) {}
    std::span<uint16_t> values() { return values_.values(); }
    void GiveBack();
    // To be called when what lies here has been sent: gives the buffer back, then calls `next`.
    Release GivesBack(Release next);

   private:
    friend WireBuffers;
    WireBuffers& owner_;
    AlignedArray<uint16_t> values_;
    Release next_;
    std::atomic<bool> taken_{false};
  };

  // Fewer leave ZeroMQ's thread idle; more do not stay in the cache (bench/sync_bench).
  static constexpr size_t kCount = 6;

  // Each of `values` numbers. `bell` outlives this.
  WireBuffers(size_t values, const EventFd& bell);

  // Null: all are under way; the bell rings when there is one again.
  Buffer* Take();

 private:
  Buffer* TakeFree();

  const EventFd& bell_;
  std::deque<Buffer> buffers_;
  std::atomic<bool> wanted_{false};
};

}  // namespace muster
