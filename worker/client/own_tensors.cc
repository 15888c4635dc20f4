#include <array>
#include <cstring>
#include <vector>

#include "common/base/arena.h"
#include "worker/client/tensor_store.h"

namespace muster {
namespace {

class OwnTensors : public TensorStore {
 public:
  OwnTensors(const SlotLayout& layout, WireType type) : type_(type) {
    planes_[0] = Arena(layout.arena_floats());
    planes_[1] = Arena(layout.arena_floats());
    for (size_t i = 0; i < layout.slots(); ++i) slots_.emplace_back(layout.arena_floats());
  }

  std::span<float> Slot(size_t part) override { return slots_[part].floats(); }
  std::span<const float> Plane(int plane) const override { return planes_.at(plane).floats(); }

  bool Store(int plane, const SlotLayout::Span& chunk, const Payload& payload) override {
    if (payload.bytes != chunk.count * BytesOf(type_)) return false;
    if (planes_.at(plane).floats().empty()) planes_[plane] = Arena(planes_[0].floats().size());
    float* const to = planes_[plane].floats().data() + chunk.begin;
    if (type_ == wire::FP32) {
      if (payload.bytes > 0) std::memcpy(to, payload.data, payload.bytes);
      return true;
    }
    // Of a large model nobody reads a chunk before it has left the cache again.
    constexpr size_t kLarge = (8 << 20) / sizeof(float);
    const bool large = planes_[plane].floats().size() > kLarge;
    (large ? WidenPastCache : Widen)(type_, payload.halves(), to);
    return true;
  }

 private:
  const WireType type_;
  std::array<Arena, 3> planes_;  // the average only if it is used
  std::vector<Arena> slots_;
};

}  // namespace

std::unique_ptr<TensorStore> MakeOwnTensors(const SlotLayout& layout, WireType type) {
  return std::make_unique<OwnTensors>(layout, type);
}

}  // namespace muster
