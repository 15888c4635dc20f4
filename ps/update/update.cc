#include "ps/update/update.h"

#include <algorithm>
#include <cstdint>

namespace muster {
namespace {

// The clipped and scaled gradient of floats [at, at + count): in a part or in `averaged` if
// unchanged, otherwise in `buffer` or `scratch`. The update itself does the tree's last addition,
// because reading two addends is faster than writing the sum first.
TreeSum::Addends Gradient(const ChunkUpdate& update, const Segment& segment, size_t at,
                          size_t count, std::span<float> scratch, float* buffer, uint32_t& bad) {
  static constexpr float kZeros[TreeSum::kBlock] = {};
  const UpdateRule& rule = update.rule;
  const UpdateKernelTable& kernels = *rule.kernels;
  const bool trained = segment.kind == Segment::Kind::kTrained;
  TreeSum::Addends gradient;
  if (const TreeSum* const tree = update.gradient.tree; tree == nullptr) {
    gradient = {update.averaged.data() + at, nullptr};
  } else {
    const bool clips = trained && rule.clip_value > 0, weighs = trained && rule.weigh != 1;
    gradient = tree->RunToLast(kernels, update.gradient.type, update.gradient.parts,
                               at - update.chunk.begin, count, scratch);
    if (gradient.left == nullptr) return {kZeros, nullptr};
    if (gradient.right != nullptr && (clips || weighs || rule.gradient_scale != 1 || !trained)) {
      kernels.add(gradient.left, gradient.right, scratch.data(), count);
      gradient = {scratch.data(), nullptr};
    }
    if (weighs) {
      kernels.scale(gradient.left, buffer, count, rule.weigh);
      gradient.left = buffer;
    }
    if (clips) {
      bad |= kernels.clip_values(gradient.left, buffer, count, rule.clip_value);
      gradient.left = buffer;
    }
  }
  if (rule.gradient_scale != 1 && trained) {
    kernels.scale(gradient.left, buffer, count, rule.gradient_scale);
    gradient.left = buffer;
  }
  return gradient;
}

uint32_t UpdateOne(const UpdateBlock& block, const Segment& segment, const UpdateRule& rule) {
  switch (segment.kind) {
    case Segment::Kind::kTrained:
      return rule.update(block, rule.Coefficients(segment));
    case Segment::Kind::kFrozen:
      return rule.kernels->keep_frozen(block);
    case Segment::Kind::kStatistic:
      return rule.kernels->statistic(block, segment.statistic_momentum);
  }
  return 0;
}

// Where to write a block's new values. If the target is a different buffer than the source and
// exceeds the cache, they go to a block in the L1 cache first and are then streamed to memory.
class Destination {
 public:
  Destination(const ChunkUpdate& update, size_t at, size_t count, std::span<const float> from,
              std::span<float> to, float* nearby)
      : kernels_(*update.rule.kernels),
        count_(count),
        to_(to.empty() ? nullptr : to.data() + at),
        nearby_(update.stream && from.data() != to.data() ? nearby : nullptr) {}

  float* place() const { return nearby_ != nullptr ? nearby_ : to_; }
  void Stream() const {
    if (nearby_ != nullptr && to_ != nullptr) kernels_.stream_out(nearby_, to_, count_);
  }

 private:
  const UpdateKernelTable& kernels_;
  const size_t count_;
  float* const to_;
  float* const nearby_;
};

// Computes next_average of the block and the copy for evaluation. Returns nonzero if a value does
// not fit the wire type.
uint32_t UpdateAverage(const ChunkUpdate& update, const Segment& segment, const float* next_weights,
                       float* next_average, size_t at, size_t count) {
  // A running statistic is already an average. The average of what never changes would change by
  // rounding.
  const double decay = segment.kind == Segment::Kind::kTrained ? update.rule.ema_decay : 0;
  update.rule.kernels->average(next_weights, update.average.data() + at, next_average, count,
                               static_cast<float>(decay), static_cast<float>(1 - decay));
  if (update.evaluated_average.empty()) return 0;
  std::copy_n(next_average, count, update.evaluated_average.data() + at);
  if (update.wire_average.empty()) return 0;
  return Narrow(update.gradient.type, {next_average, count}, update.wire_average.data() + at);
}

}  // namespace

bool ApplyUpdate(const ChunkUpdate& update) {
  const bool sums = update.gradient.tree != nullptr;
  std::vector<float> scratch(sums ? update.gradient.tree->scratch_floats() : 0);
  alignas(64) float buffer[TreeSum::kBlock];
  alignas(64) float next[TreeSum::kBlock], next_average[TreeSum::kBlock];
  alignas(64) float next_state[2][TreeSum::kBlock];
  const UpdateKernelTable& kernels = *update.rule.kernels;
  const Chunk& chunk = update.chunk;
  uint32_t bad = 0;
  auto segment = SegmentAt(update.segments, chunk.begin);
  for (size_t at = chunk.begin; at < chunk.end;) {
    if (segment->end <= at) ++segment;
    const size_t count = std::min({TreeSum::kBlock, chunk.end - at, segment->end - at});
    const TreeSum::Addends gradient = Gradient(update, *segment, at, count, scratch, buffer, bad);
    const auto destination = [&](std::span<const float> from, std::span<float> to, float* nearby) {
      return Destination(update, at, count, from, to, nearby);
    };
    const Destination weights = destination(update.weights, update.next_weights, next);
    const Destination average = destination(update.average, update.next_average, next_average);
    const Destination state[2] = {
        destination(update.state[0], update.next_state[0], next_state[0]),
        destination(update.state[1], update.next_state[1], next_state[1]),
    };
    UpdateBlock block{
        .count = count,
        .gradient = gradient.left,
        .addend = gradient.right,
        .weights = update.weights.data() + at,
        .next_weights = weights.place(),
    };
    for (size_t i = 0; i < update.state.size(); ++i) {
      if (update.state[i].empty()) continue;
      block.state[i] = update.state[i].data() + at;
      block.next_state[i] = state[i].place();
    }
    bad |= UpdateOne(block, *segment, update.rule);
    if (update.observer != nullptr && segment->kind == Segment::Kind::kTrained) {
      update.observer->See(kernels, at, count, gradient.left, gradient.right, weights.place());
    }
    if (!update.average.empty()) {
      bad |= UpdateAverage(update, *segment, weights.place(), average.place(), at, count);
      average.Stream();
    }
    if (!update.wire_weights.empty()) {
      bad |=
          Narrow(update.gradient.type, {weights.place(), count}, update.wire_weights.data() + at);
    }
    weights.Stream();
    if (segment->kind == Segment::Kind::kTrained) {  // the state of other segments is always zero
      for (const Destination& one : state) one.Stream();
    }
    at += count;
  }
  if (update.stream) kernels.fence_streams();
  return bad == 0;
}

}  // namespace muster
