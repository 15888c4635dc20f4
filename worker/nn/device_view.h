// Floats that the host has, as the device sees them: the same memory where the device computes in
// the host's, and then nothing is ever copied; else memory of the device, as large, with copies
// that are queued when they are asked for. There the host's floats have their pages for themselves.
//
// Owner and thread: the backend's. The host's memory must outlive what is queued.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "worker/backend/backend.h"

namespace muster {

class DeviceView {
 public:
  // What the host has is only read: weights. `read_only`: it is mapped for reading alone.
  DeviceView(Backend& backend, std::span<const float> host, bool read_only = false);
  // Written by the device: gradients. Zero at first.
  DeviceView(Backend& backend, std::span<float> host);

  // What a view of so many floats allocates on the device.
  static size_t BytesFor(const Backend& backend, size_t floats) {
    return backend.shares_host_memory() ? 0 : floats * sizeof(float);
  }

  std::span<float> floats() { return device_; }
  std::span<const float> floats() const { return device_; }
  const float* host() const { return host_; }

  // Floats [begin, end) are on the device for what is queued on kCompute from now on. Nothing that
  // was queued before may still read them there.
  void CopyIn(size_t begin, size_t end);
  // What kCompute was given so far has written [begin, end): they are at the host when what is
  // queued on kCopyOut is done.
  void CopyOut(size_t begin, size_t end);

 private:
  DeviceView(Backend& backend, const HostMemory& host, float* writable);

  Backend& backend_;
  const float* const host_;
  float* const writable_;                 // the same, or null
  std::unique_ptr<DeviceBuffer> memory_;  // null where the host's serves
  std::unique_ptr<HostRegistration> registration_;
  std::unique_ptr<Event> event_;
  std::span<float> device_;
};

}  // namespace muster
