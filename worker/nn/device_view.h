// The device's view of floats on the host. If the device computes in host memory, this is the same
// memory and nothing is copied. Otherwise it is device memory of the same size, copies are queued,
// and the host's floats must not share pages with other data.
//
// Used on the backend's thread. The host's memory must outlive the queued work.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "worker/backend/backend.h"

namespace muster {

class DeviceView {
 public:
  // Makes a view of floats that the device only reads, such as weights. `read_only`: whether they
  // are mapped read-only.
  DeviceView(Backend& backend, std::span<const float> host, bool read_only = false);
  // Makes a view that the device writes, such as gradients. Device memory is filled with zeros.
  DeviceView(Backend& backend, std::span<float> host);

  // Returns the bytes of device memory for a view of `floats` floats.
  static size_t BytesFor(const Backend& backend, size_t floats) {
    return backend.shares_host_memory() ? 0 : floats * sizeof(float);
  }

  std::span<float> floats() { return device_; }
  std::span<const float> floats() const { return device_; }
  const float* host() const { return host_; }
  // See Backend::Export. Only of memory that is separate.
  std::string Export() { return memory_ == nullptr ? "" : backend_.Export(*memory_); }

  // Copies floats [begin, end) to the device for work that is queued on kCompute from now on. Work
  // queued earlier must no longer read them.
  void CopyIn(size_t begin, size_t end);
  // Copies floats [begin, end), as written by the work queued on kCompute so far, to the host. They
  // have arrived when the work queued on kCopyOut is done.
  void CopyOut(size_t begin, size_t end);

 private:
  DeviceView(Backend& backend, const HostMemory& host, float* writable);

  Backend& backend_;
  const float* const host_;
  float* const writable_;                 // host_, or null if the device only reads
  std::unique_ptr<DeviceBuffer> memory_;  // null if the host's memory is used
  std::unique_ptr<HostRegistration> registration_;
  std::unique_ptr<Event> event_;
  std::span<float> device_;
};

}  // namespace muster
