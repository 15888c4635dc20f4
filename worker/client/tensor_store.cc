#include "worker/client/tensor_store.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/memory.h"

namespace muster {
namespace {

class OwnTensors : public TensorStore {
 public:
  OwnTensors(const GradientLayout& layout, WireType type) : type_(type), used_(layout.used()) {
    weight_buffers_[0] = NewBuffer(layout.arena_floats());
    weight_buffers_[1] = NewBuffer(layout.arena_floats());
    gradient_buffers_.resize(layout.arenas());
    for (size_t i = 0; i < layout.used(); ++i) (void)GradientBuffer(i);
  }

  std::span<float> GradientBuffer(size_t arena) override {
    Arena& buffer = gradient_buffers_[arena];
    if (buffer.floats().empty()) buffer = NewBuffer(weight_buffers_[0].floats().size());
    return buffer.floats();
  }
  void GiveBack(size_t arena) override {
    const std::span<float> floats = gradient_buffers_[arena].floats();
    if (arena >= used_) GiveBackPages(floats.data(), floats.size_bytes(), PagesOf::kProcess);
  }
  std::span<const float> WeightBuffer(int buffer) const override {
    return weight_buffers_.at(buffer).floats();
  }

  bool Store(int buffer, const GradientLayout::Span& chunk, const Payload& payload) override {
    if (payload.bytes != chunk.count * BytesOf(type_)) return false;
    if (weight_buffers_.at(buffer).floats().empty())
      weight_buffers_[buffer] = NewBuffer(weight_buffers_[0].floats().size());
    float* const to = weight_buffers_[buffer].floats().data() + chunk.begin;
    if (type_ == wire::FP32) {
      if (payload.bytes > 0) std::memcpy(to, payload.data, payload.bytes);
      return true;
    }
    // A chunk of a large model leaves the cache before it is read.
    constexpr size_t kLarge = (8 << 20) / sizeof(float);
    const bool large = weight_buffers_[buffer].floats().size() > kLarge;
    (large ? WidenPastCache : Widen)(type_, payload.halves(), to);
    return true;
  }

 private:
  // Uses separate pages, so that the GPU driver can lock them.
  static Arena NewBuffer(size_t floats) { return Arena(floats, kMostPage); }

  const WireType type_;
  const size_t used_;
  std::array<Arena, 3> weight_buffers_;  // the average is allocated only when used
  std::vector<Arena> gradient_buffers_;
};

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

  // The server has already written the chunk. Returns false for an average without memory.
  bool Store(int buffer, const GradientLayout::Span& chunk, const Payload&) override {
    return WeightBuffer(buffer).size() >= chunk.begin + chunk.count;
  }

 private:
  const SharedTensors shared_;
  const GradientLayout layout_;
};

}  // namespace

std::unique_ptr<TensorStore> MakeOwnTensors(const GradientLayout& layout, WireType type) {
  return std::make_unique<OwnTensors>(layout, type);
}

std::unique_ptr<TensorStore> MakeSharedTensors(SharedTensors shared, const GradientLayout& layout) {
  const size_t weight_buffers = 2 * SharedArenaFloats(layout.arena_floats()) * sizeof(float);
  if (shared.weight_buffers.bytes() < weight_buffers ||
      shared.gradient_buffers.bytes() < layout.bytes()) {
    throw Error(ExitCode::kPeerFailed,
                "the server shared {} bytes of weights and {} bytes of gradient buffers, expected "
                "at least {} and {}",
                shared.weight_buffers.bytes(), shared.gradient_buffers.bytes(), weight_buffers,
                layout.bytes());
  }
  return std::make_unique<SharedTensorStore>(std::move(shared), layout);
}

}  // namespace muster
