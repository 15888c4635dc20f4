#include <utility>

#include "common/base/aligned_memory.h"
#include "common/base/error.h"
#include "worker/client/tensor_store.h"

namespace muster {
namespace {

class SharedTensorStore : public TensorStore {
 public:
  SharedTensorStore(SharedTensors shared, const GradientLayout& layout)
      : shared_(std::move(shared)), layout_(layout) {}

  std::span<float> GradientBuffer(size_t arena) override {
    const GradientLayout::Span gradient_buffer = layout_.Arena(arena);
    return shared_.gradient_buffers.writable_floats().subspan(gradient_buffer.begin,
                                                              gradient_buffer.count);
  }

  void GiveBack(size_t arena) override {
    const std::span<float> floats = GradientBuffer(arena);
    if (arena >= layout_.used())
      GiveBackPages(floats.data(), floats.size_bytes(), PagesOf::kShared);
  }

  std::span<const float> WeightBuffer(int buffer) const override {
    const std::span<const float> weight_buffers = shared_.weight_buffers.floats();
    const size_t begin = static_cast<size_t>(buffer) * SharedArenaFloats(layout_.arena_floats());
    if (weight_buffers.size() < begin + layout_.arena_floats()) return {};
    return weight_buffers.subspan(begin, layout_.arena_floats());
  }

  // The server has written it. Without room for the average there is none.
  bool Store(int buffer, const GradientLayout::Span& chunk, const Payload&) override {
    return WeightBuffer(buffer).size() >= chunk.begin + chunk.count;
  }

 private:
  const SharedTensors shared_;
  const GradientLayout layout_;
};

}  // namespace

std::unique_ptr<TensorStore> MakeSharedTensors(SharedTensors shared, const GradientLayout& layout,
                                               WireType type) {
  if (type != wire::FP32) {
    throw Error(ExitCode::kPeerFailed, "the server wants to round what lies in shared memory");
  }
  const size_t weight_buffers = 2 * SharedArenaFloats(layout.arena_floats()) * sizeof(float);
  if (shared.weight_buffers.bytes() < weight_buffers ||
      shared.gradient_buffers.bytes() < layout.bytes()) {
    throw Error(ExitCode::kPeerFailed,
                "the server handed over {} bytes of weights and {} of gradient buffers, expected "
                "at least {} "
                "and {}",
                shared.weight_buffers.bytes(), shared.gradient_buffers.bytes(), weight_buffers,
                layout.bytes());
  }
  return std::make_unique<SharedTensorStore>(std::move(shared), layout);
}

}  // namespace muster
