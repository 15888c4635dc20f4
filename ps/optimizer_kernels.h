// The arithmetic of an update on a block that stays in the L1 cache. Plain loops over floats, each
// operation rounded by itself (no contraction, no reassociation, no approximate reciprocals), so
// that any instruction set gives the same bits: +, -, *, / and √ are correctly rounded everywhere.
//
// A version for an instruction set is a function of the same signature with the same operations in
// the same order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// One block of at most 1,024 floats of a chunk. None of the ranges overlap.
struct UpdateBlock {
  size_t count = 0;
  const float* gradient = nullptr;
  const float* weights = nullptr;        // W(v)
  float* next_weights = nullptr;         // W(v + 1)
  float* state[2] = {nullptr, nullptr};  // see each kernel
};

struct UpdateCoefficients {
  float rate = 0;             // of Adam: divided by 1 - beta1^t
  float coupled_decay = 0;    // g ← gradient + coupled_decay w
  float decoupled_decay = 0;  // learning rate * weight decay
  float momentum = 0;
  float beta1 = 0, one_minus_beta1 = 1;
  float beta2 = 0, one_minus_beta2 = 1;
  float root_correction2 = 1;  // √(1 - beta2^t)
  float epsilon = 0;
};

// Writes next_weights and changes the state in place. Nonzero if a new weight, or a second moment
// (which would silence its weight for ever), is not finite. A gradient that is not finite always
// makes one of them so.
using UpdateKernel = uint32_t (*)(const UpdateBlock&, const UpdateCoefficients&);

uint32_t UpdateSgd(const UpdateBlock&, const UpdateCoefficients&);
uint32_t UpdateMomentum(const UpdateBlock&, const UpdateCoefficients&);         // state: m
uint32_t UpdateNesterov(const UpdateBlock&, const UpdateCoefficients&);         // state: m
uint32_t UpdateAdam(const UpdateBlock&, const UpdateCoefficients&);             // state: m, v
uint32_t UpdateRmsprop(const UpdateBlock&, const UpdateCoefficients&);          // state: v
uint32_t UpdateRmspropMomentum(const UpdateBlock&, const UpdateCoefficients&);  // state: v, m

// w ← w + momentum (s - w), s being in the gradient's place.
uint32_t UpdateStatistic(const UpdateBlock& block, float momentum);
// w ← w. Nonzero if the gradient, of which no use is made, is not finite.
uint32_t KeepFrozen(const UpdateBlock& block);

// e ← decay e + (1 - decay) w
void UpdateAverage(const float* weights, float* average, size_t count, float decay,
                   float one_minus_decay);

// to ← from, each value cut to [-limit, limit]; an infinity or a NaN stays one. May be in place.
// Nonzero if a value is not finite.
uint32_t ClipValues(const float* from, float* to, size_t count, float limit);
// to ← from * factor. May be in place.
void Scale(const float* from, float* to, size_t count, float factor);
// to ← from. Nonzero if a value is not finite.
uint32_t CopyFinite(const float* from, float* to, size_t count);

// squares[i] = the sum of the squares of floats [16 i, 16 i + 16), in double, for count / 16 lines.
// In a fixed order: (f_j² + f_{j+8}²) for j = 0 … 7, then halves on halves.
constexpr size_t kLineFloats = 16;
void LineSquares(const float* from, double* squares, size_t count);

}  // namespace muster
