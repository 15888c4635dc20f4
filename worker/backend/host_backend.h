// The base class of backends whose device is the host: nothing is copied, and work is done when the
// call returns. Derived classes add the ops.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "worker/backend/backend.h"

namespace muster {

class HostBackend : public Backend {
 public:
  bool shares_host_memory() const final { return true; }
  std::unique_ptr<DeviceBuffer> Allocate(size_t bytes) final {
    return std::make_unique<HostBuffer>(bytes);
  }
  DeviceMemoryUse memory_use() const final { return {}; }
  std::unique_ptr<HostRegistration> Register(const HostMemory&) final { return nullptr; }
  void CopyIn(void*, const void*, size_t) final { MUSTER_CHECK(!"the memory is the host's"); }
  void CopyOut(void*, const void*, size_t) final { MUSTER_CHECK(!"the memory is the host's"); }

  std::unique_ptr<Event> MakeEvent() final { return std::make_unique<Done>(); }
  void Record(Queue, Event&) final {}
  void Await(Queue, Event&) final {}
  void Drain() final {}

  void ScalePixels(void*, const uint8_t*, int64_t, const PixelScale&) final {
    MUSTER_CHECK(!"batches in host memory are floats");
  }
  void Zero(void* to, size_t bytes) final { std::memset(to, 0, bytes); }

 private:
  class Done : public Event {
   public:
    bool IsDone() override { return true; }
    bool Wait(double) override { return true; }
  };

  class HostBuffer : public DeviceBuffer {
   public:
    explicit HostBuffer(size_t bytes) : data_(AllocateAligned(bytes)) {}
    ~HostBuffer() override { std::free(data_); }
    HostBuffer(const HostBuffer&) = delete;
    HostBuffer& operator=(const HostBuffer&) = delete;
    void* data() override { return data_; }

   private:
    void* const data_;
  };
};

}  // namespace muster
