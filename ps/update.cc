#include "ps/update.h"

#include <algorithm>
#include <cstdint>

namespace muster {
namespace {

// Where the gradient of floats [at, at + count) is, clipped and scaled: in a part or `averaged` if
// nothing had to be done, else in `buffer` or `scratch`. The last addition of a tree is left to
// the update, which reads both addends faster than a sum that is written first.
TreeSum::Addends Gradient(const ChunkUpdate& update, const Segment& segment, size_t at,
                          size_t count, std::span<float> scratch, float* buffer, uint32_t& bad) {
  static constexpr float kZeros[TreeSum::kBlock] = {};
  const UpdateRule& rule = update.rule;
  const PassKernels& kernels = *rule.kernels;
  const bool trained = segment.kind == Segment::Kind::kTrained;
  TreeSum::Addends gradient{update.averaged.data() + at, nullptr};
  if (const TreeSum* const tree = update.gradient.tree) {
    const bool clips = trained && rule.clip_value > 0;
    gradient = tree->RunToLast(kernels, update.gradient.type, update.gradient.parts,
                               at - update.chunk.begin, count, scratch);
    if (gradient.left == nullptr) return {kZeros, nullptr};
    if (gradient.right != nullptr && (clips || rule.gradient_scale != 1 || !trained)) {
      kernels.add(gradient.left, gradient.right, scratch.data(), count);
      gradient = {scratch.data(), nullptr};
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

// What workers will see of the block's new weights and average.
uint32_t NarrowBlock(const ChunkUpdate& update, const float* next_weights, size_t at,
                     size_t count) {
  if (update.wire_weights.empty()) return 0;
  const WireType type = update.gradient.type;
  uint32_t bad = Narrow(type, {next_weights, count}, update.wire_weights.data() + at);
  if (!update.wire_average.empty()) {
    bad |= Narrow(type, update.average.subspan(at, count), update.wire_average.data() + at);
  }
  return bad;
}

}  // namespace

bool ApplyUpdate(const ChunkUpdate& update) {
  const bool sums = update.gradient.tree != nullptr;
  std::vector<float> scratch(sums ? update.gradient.tree->scratch_floats() : 0);
  alignas(64) float buffer[TreeSum::kBlock];
  alignas(64) float next[TreeSum::kBlock];
  const PassKernels& kernels = *update.rule.kernels;
  const double ema_decay = update.rule.ema_decay;
  const Chunk& chunk = update.chunk;
  uint32_t bad = 0;
  auto segment = SegmentAt(update.segments, chunk.begin);
  for (size_t at = chunk.begin; at < chunk.end;) {
    if (segment->end <= at) ++segment;
    const size_t count = std::min({TreeSum::kBlock, chunk.end - at, segment->end - at});
    const TreeSum::Addends gradient = Gradient(update, *segment, at, count, scratch, buffer, bad);
    UpdateBlock block{
        .count = count,
        .gradient = gradient.left,
        .addend = gradient.right,
        .weights = update.weights.data() + at,
        .next_weights = update.stream ? next : update.next_weights.data() + at,
    };
    for (size_t i = 0; i < update.state.size(); ++i) {
      if (!update.state[i].empty()) block.state[i] = update.state[i].data() + at;
    }
    bad |= UpdateOne(block, *segment, update.rule);
    if (!update.average.empty()) {
      // A running statistic is an average already.
      const bool statistic = segment->kind == Segment::Kind::kStatistic;
      kernels.average(block.next_weights, update.average.data() + at, count,
                      statistic ? 0 : static_cast<float>(ema_decay),
                      statistic ? 1 : static_cast<float>(1 - ema_decay));
    }
    bad |= NarrowBlock(update, block.next_weights, at, count);
    if (update.stream) kernels.stream_out(next, update.next_weights.data() + at, count);
    at += count;
  }
  if (update.stream) kernels.fence_streams();
  return bad == 0;
}

}  // namespace muster
