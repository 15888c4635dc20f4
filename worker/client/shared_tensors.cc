#include <utility>

#include "common/base/error.h"
#include "worker/client/tensor_store.h"

namespace muster {
namespace {

class SharedTensorStore : public TensorStore {
 public:
  SharedTensorStore(SharedTensors shared, const SlotLayout& layout)
      : shared_(std::move(shared)), layout_(layout) {}

  std::span<float> Slot(size_t part) override {
    const SlotLayout::Span slot = layout_.Slot(part);
    return shared_.slots.writable_floats().subspan(slot.begin, slot.count);
  }

  std::span<const float> Plane(int plane) const override {
    const std::span<const float> planes = shared_.planes.floats();
    const size_t begin = static_cast<size_t>(plane) * layout_.arena_floats();
    if (planes.size() < begin + layout_.arena_floats()) return {};
    return planes.subspan(begin, layout_.arena_floats());
  }

  // The server has written it. Without room for the average there is none.
  bool Store(int plane, const SlotLayout::Span& chunk, const Payload&) override {
    return Plane(plane).size() >= chunk.begin + chunk.count;
  }

 private:
  const SharedTensors shared_;
  const SlotLayout layout_;
};

}  // namespace

std::unique_ptr<TensorStore> MakeSharedTensors(SharedTensors shared, const SlotLayout& layout,
                                               WireType type) {
  if (type != wire::FP32) {
    throw Error(ExitCode::kPeerFailed, "the server wants to round what lies in shared memory");
  }
  const size_t planes = 2 * layout.arena_floats() * sizeof(float);
  if (shared.planes.bytes() < planes || shared.slots.bytes() < layout.bytes()) {
    throw Error(ExitCode::kPeerFailed,
                "the server handed over {} bytes of weights and {} of slots, expected at least {} "
                "and {}",
                shared.planes.bytes(), shared.slots.bytes(), planes, layout.bytes());
  }
  return std::make_unique<SharedTensorStore>(std::move(shared), layout);
}

}  // namespace muster
