// A few reused buffers that hold gradients rounded to 16 bits while they are sent. There are only a
// few so that the data that ZeroMQ's thread reads stays in the cache.
//
// One thread takes buffers; any thread may return them. A buffer must not be returned twice.
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
    // Makes the Release for sending this buffer. It returns the buffer, then calls `next`.
    Release GivesBack(Release next);

   private:
    friend WireBuffers;
    WireBuffers& owner_;
    AlignedArray<uint16_t> values_;
    Release next_;
    std::atomic<bool> taken_{false};
  };

  // Fewer buffers leave ZeroMQ's thread idle; more do not stay in the cache (bench/sync_bench).
  static constexpr size_t kCount = 6;

  // Each buffer holds `values` numbers. `bell` must outlive this.
  WireBuffers(size_t values, const EventFd& bell);

  // Returns null if all are in use; the bell rings when one is free again.
  Buffer* Take();

 private:
  Buffer* TakeFree();

  const EventFd& bell_;
  std::deque<Buffer> buffers_;
  std::atomic<bool> wanted_{false};
};

}  // namespace muster
