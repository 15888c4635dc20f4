// Adds gradients where they are: in the memory of this host's GPUs. For the relay of the host
// (worker/relay), whose workers keep their gradients there.
//
// Used by one thread. Throws Error if a GPU fails or does not finish in time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace muster {

class GpuAdder {
 public:
  virtual ~GpuAdder() = default;

  // Allocates memory for sums of up to `count` values in `places` places.
  virtual void Reserve(size_t places, size_t count) = 0;
  // Opens a buffer that a worker of this host has exported (Backend::Export). The worker must not
  // free it before Close. If the worker is killed, the GPU may fail while it reads the buffer.
  virtual const float* Open(const std::string& handle) = 0;
  virtual void Close(const float* buffer) = 0;
  // Queues a + b. The sum is in the reserved place `place`, which may also hold `a`.
  virtual const float* Add(const float* a, const float* b, size_t count, size_t place) = 0;
  // Returns the values in host memory, after everything queued before.
  virtual std::shared_ptr<const float> Bring(const float* from, size_t count) = 0;
};

}  // namespace muster
