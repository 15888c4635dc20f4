#include "common/transport/local/gradient_memory.h"

namespace muster {

Payload GradientMemory::Find(const wire::WorkerMessage& message) const {
  if (!message.has_gradient_part() || message.gradient_part().empty()) return {};
  const wire::GradientPart& part = message.gradient_part();
  const auto span = layout_.Chunk(part.chunk(), part.has_place() ? part.place() : part.buffer());
  if (!span) return {};
  const std::span<const float> floats =
      gradient_buffers_->floats().subspan(span->begin, span->count);
  return {floats.data(), floats.size_bytes(), gradient_buffers_};
}

}  // namespace muster
