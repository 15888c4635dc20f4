#include "worker/nn/device_view.h"

#include "common/base/error.h"
#include "worker/nn/name_failure.h"

namespace muster {

DeviceView::DeviceView(Backend& backend, std::span<const float> host)
    : DeviceView(backend, host.data(), nullptr, host.size()) {}

DeviceView::DeviceView(Backend& backend, std::span<float> host)
    : DeviceView(backend, host.data(), host.data(), host.size()) {}

DeviceView::DeviceView(Backend& backend, const float* host, float* writable, size_t size)
    : backend_(backend), host_(host), writable_(writable) {
  if (backend.shares_host_memory()) {
    // Never written through where the host's is read only.
    device_ = {const_cast<float*>(host), size};
    return;
  }
  const size_t bytes = size * sizeof(float);
  registration_ = backend.Register(host, bytes, writable == nullptr);
  event_ = backend.MakeEvent();
  memory_ = NameFailure(writable == nullptr ? "weights" : "gradients",
                        [&] { return backend.Allocate(bytes); });
  device_ = {static_cast<float*>(memory_->data()), size};
  if (writable != nullptr) backend.Zero(device_.data(), bytes);
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
