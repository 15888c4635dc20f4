#include "ps/update.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace muster {
namespace {

// Nonzero for an infinity or a NaN. Plain integer arithmetic, which vectorises.
inline uint32_t NotFinite(float x) {
  return static_cast<uint32_t>((std::bit_cast<uint32_t>(x) & 0x7f800000u) == 0x7f800000u);
}

// w' = w - lr (g + decay w)
uint32_t Sgd(const float* __restrict g, const float* __restrict w, float* __restrict next, size_t n,
             float lr, float decay) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    next[i] = w[i] - lr * (g[i] + decay * w[i]);
    bad |= NotFinite(next[i]);
  }
  return bad;
}

// m' = mu m + (g + decay w);  w' = w - lr m'
uint32_t Momentum(const float* __restrict g, const float* __restrict w, float* __restrict m,
                  float* __restrict next, size_t n, float lr, float mu, float decay) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    m[i] = mu * m[i] + (g[i] + decay * w[i]);
    next[i] = w[i] - lr * m[i];
    bad |= NotFinite(next[i]);
  }
  return bad;
}

}  // namespace

std::vector<DecaySegment> DecaySegments(const Graph& graph) {
  std::vector<DecaySegment> segments;
  for (const Variable& variable : graph.variables()) {
    if (!segments.empty()) segments.back().end = variable.offset;
    segments.push_back({variable.offset, graph.arena_floats(), variable.weight_decay.value_or(0)});
  }
  return segments;
}

bool ApplyUpdate(const ChunkUpdate& update) {
  std::vector<float> scratch(update.tree->scratch_floats());
  const float zeros[TreeSum::kBlock] = {};
  uint32_t bad = 0;
  const Chunk& chunk = update.chunk;
  auto segment = std::upper_bound(update.segments.begin(), update.segments.end(), chunk.begin,
                                  [](size_t at, const DecaySegment& s) { return at < s.end; });
  for (size_t at = chunk.begin; at < chunk.end;) {
    while (segment->end <= at) ++segment;
    const size_t n = std::min({TreeSum::kBlock, chunk.end - at, segment->end - at});
    const float* g = update.tree->Run(update.parts, at - chunk.begin, n, scratch);
    if (g == nullptr) g = zeros;
    const float* w = update.weights.data() + at;
    float* next = update.next_weights.data() + at;
    const UpdateRule& rule = update.rule;
    if (rule.type == config::Optimizer::MOMENTUM) {
      bad |= Momentum(g, w, update.momentum.data() + at, next, n, rule.learning_rate, rule.momentum,
                      segment->weight_decay);
    } else {
      bad |= Sgd(g, w, next, n, rule.learning_rate, segment->weight_decay);
    }
    at += n;
  }
  return bad == 0;
}

}  // namespace muster
