#include "worker/nn/device_view.h"

#include "common/base/error.h"
#include "worker/nn/name_failure.h"

namespace muster {

DeviceView::DeviceView(Backend& backend, std::span<const float> host, bool read_only)
    : DeviceView(backend, {"weights", host.data(), host.size_bytes(), read_only}, nullptr) {}

DeviceView::DeviceView(Backend& backend, std::span<float> host)
    : DeviceView(backend, {"gradients", host.data(), host.size_bytes(), false}, host.data()) {}

DeviceView::DeviceView(Backend& backend, const HostMemory& host, float* writable)
    : backend_(backend), host_(static_cast<const float*>(host.begin)), writable_(writable) {
  const size_t size = host.bytes / sizeof(float);
  if (backend.shares_host_memory()) {
    // Nothing writes to it if the host's memory is read-only.
    device_ = {const_cast<float*>(host_), size};
    return;
  }
  registration_ = backend.Register(host);
  event_ = backend.MakeEvent();
  memory_ = NameFailure(host.what, [&] { return backend.Allocate(host.bytes); });
  device_ = {static_cast<float*>(memory_->data()), size};
  if (writable != nullptr) backend.Zero(device_.data(), host.bytes);
}

void DeviceView::CopyIn(size_t begin, size_t end) {
  if (memory_ == nullptr) return;
  backend_.CopyIn(device_.data() + begin, host_ + begin, (end - begin) * sizeof(float));
  backend_.Record(Queue::kCopyIn, *event_);
  backend_.Await(Queue::kCompute, *event_);
}

void DeviceView::CopyOut(size_t begin, size_t end) {
  if (memory_ == nullptr) return;
  MUSTER_CHECK(writable_ != nullptr);
  backend_.Record(Queue::kCompute, *event_);
  backend_.Await(Queue::kCopyOut, *event_);
  backend_.CopyOut(writable_ + begin, device_.data() + begin, (end - begin) * sizeof(float));
}

}  // namespace muster
