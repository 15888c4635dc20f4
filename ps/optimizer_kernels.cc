#include "ps/optimizer_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace muster {
namespace {

// Nonzero for an infinity or a NaN. Plain integer arithmetic, which vectorises.
inline uint32_t NotFinite(float x) {
  return static_cast<uint32_t>((std::bit_cast<uint32_t>(x) & 0x7f800000u) == 0x7f800000u);
}

// What all kernels have in common: g with coupled decay, w' = w - (rate direction + decay w). The
// two changes are added first: a factor 1 - decay near 1 would lose most digits of the decay.
// `direction` is a function of the element's index and g, and keeps the state. It says through
// `bad` what it finds not finite itself.
template <typename Direction>
inline uint32_t Update(const UpdateBlock& block, const UpdateCoefficients& c,
                       const Direction& direction) {
  const float* __restrict gradient = block.gradient;
  const float* __restrict w = block.weights;
  float* __restrict next = block.next_weights;
  const float rate = c.rate, decay = c.coupled_decay, beside = c.decoupled_decay;
  uint32_t bad = 0;
  for (size_t i = 0; i < block.count; ++i) {
    const float g = gradient[i] + decay * w[i];
    next[i] = w[i] - (rate * direction(i, g, bad) + beside * w[i]);
    bad |= NotFinite(next[i]);
  }
  return bad;
}

}  // namespace

uint32_t UpdateSgd(const UpdateBlock& block, const UpdateCoefficients& c) {
  return Update(block, c, [](size_t, float g, uint32_t&) { return g; });
}

uint32_t UpdateMomentum(const UpdateBlock& block, const UpdateCoefficients& c) {
  float* __restrict m = block.state[0];
  return Update(block, c, [m, mu = c.momentum](size_t i, float g, uint32_t&) {
    return m[i] = mu * m[i] + g;
  });
}

uint32_t UpdateNesterov(const UpdateBlock& block, const UpdateCoefficients& c) {
  float* __restrict m = block.state[0];
  return Update(block, c, [m, mu = c.momentum](size_t i, float g, uint32_t&) {
    m[i] = mu * m[i] + g;
    return g + mu * m[i];
  });
}

uint32_t UpdateAdam(const UpdateBlock& block, const UpdateCoefficients& c) {
  float* __restrict m = block.state[0];
  float* __restrict v = block.state[1];
  return Update(block, c, [m, v, c](size_t i, float g, uint32_t& bad) {
    m[i] = c.beta1 * m[i] + c.one_minus_beta1 * g;
    v[i] = c.beta2 * v[i] + (c.one_minus_beta2 * g) * g;
    bad |= NotFinite(v[i]);
    return m[i] / (std::sqrt(v[i]) / c.root_correction2 + c.epsilon);
  });
}

uint32_t UpdateRmsprop(const UpdateBlock& block, const UpdateCoefficients& c) {
  float* __restrict v = block.state[0];
  return Update(block, c, [v, c](size_t i, float g, uint32_t& bad) {
    v[i] = c.beta2 * v[i] + (c.one_minus_beta2 * g) * g;
    bad |= NotFinite(v[i]);
    return g / (std::sqrt(v[i]) + c.epsilon);
  });
}

uint32_t UpdateRmspropMomentum(const UpdateBlock& block, const UpdateCoefficients& c) {
  float* __restrict v = block.state[0];
  float* __restrict m = block.state[1];
  return Update(block, c, [m, v, c](size_t i, float g, uint32_t& bad) {
    v[i] = c.beta2 * v[i] + (c.one_minus_beta2 * g) * g;
    bad |= NotFinite(v[i]);
    return m[i] = c.momentum * m[i] + g / (std::sqrt(v[i]) + c.epsilon);
  });
}

uint32_t UpdateStatistic(const UpdateBlock& block, float momentum) {
  const float* __restrict s = block.gradient;
  const float* __restrict w = block.weights;
  float* __restrict next = block.next_weights;
  uint32_t bad = 0;
  for (size_t i = 0; i < block.count; ++i) {
    next[i] = w[i] + momentum * (s[i] - w[i]);
    bad |= NotFinite(next[i]);
  }
  return bad;
}

uint32_t KeepFrozen(const UpdateBlock& block) {
  uint32_t bad = 0;
  for (size_t i = 0; i < block.count; ++i) bad |= NotFinite(block.gradient[i]);
  std::memcpy(block.next_weights, block.weights, block.count * sizeof(float));
  return bad;
}

void UpdateAverage(const float* __restrict weights, float* __restrict average, size_t count,
                   float decay, float one_minus_decay) {
  for (size_t i = 0; i < count; ++i) {
    average[i] = decay * average[i] + one_minus_decay * weights[i];
  }
}

uint32_t ClipValues(const float* from, float* to, size_t count, float limit) {
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    const float x = from[i];
    const uint32_t not_finite = NotFinite(x);
    bad |= not_finite;
    const float low = x < -limit ? -limit : x;
    const float cut = low > limit ? limit : low;
    to[i] = not_finite != 0 ? x : cut;
  }
  return bad;
}

void Scale(const float* from, float* to, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i] * factor;
}

uint32_t CopyFinite(const float* __restrict from, float* __restrict to, size_t count) {
  uint32_t bad = 0;
  for (size_t i = 0; i < count; ++i) {
    to[i] = from[i];
    bad |= NotFinite(from[i]);
  }
  return bad;
}

void LineSquares(const float* __restrict from, double* __restrict squares, size_t count) {
  for (size_t line = 0; line < count / kLineFloats; ++line) {
    const float* f = from + line * kLineFloats;
    double sum[8];
    for (size_t j = 0; j < 8; ++j) {
      const double a = f[j], b = f[j + 8];
      sum[j] = a * a + b * b;
    }
    for (size_t j = 0; j < 4; ++j) sum[j] += sum[j + 4];
    for (size_t j = 0; j < 2; ++j) sum[j] += sum[j + 2];
    squares[line] = sum[0] + sum[1];
  }
}

}  // namespace muster
