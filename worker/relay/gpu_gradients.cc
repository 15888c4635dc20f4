#include "worker/relay/gpu_gradients.h"

#include <tuple>

namespace muster {

void GpuGradients::Open(uint32_t via, const wire::GpuBuffer& buffer) {
  const float*& place = buffers_[{via, buffer.buffer()}];
  if (place == nullptr) place = adder_->Open(buffer.handle());
}

void GpuGradients::Close(uint32_t via) {
  std::erase_if(buffers_, [&](const auto& buffer) {
    if (buffer.first.first != via) return false;
    adder_->Close(buffer.second);
    return true;
  });
}

const float* GpuGradients::Find(const RelayedGradient& gradient) const {
  const wire::GradientPart& part = gradient.message.gradient_part();
  if (!part.in_gpu() || part.chunk() >= chunk_end_.size()) return nullptr;
  const auto found = buffers_.find({gradient.message.via(), part.buffer()});
  if (found == buffers_.end()) return nullptr;
  return found->second + (part.chunk() == 0 ? 0 : chunk_end_[part.chunk() - 1]);
}

void GpuGradients::Bring(RelayedGradient& gradient) const {
  const float* const from = Find(gradient);
  if (from == nullptr) return;
  std::shared_ptr<const float> values = adder_->Bring(from, gradient.payload.bytes / sizeof(float));
  gradient.payload.data = values.get();
  gradient.payload.owner = std::move(values);
  gradient.message.mutable_gradient_part()->clear_in_gpu();
}

}  // namespace muster
