// The arithmetic of the pass over memory on a block that stays in the L1 cache. Plain loops over
// floats, each operation rounded by itself (no contraction, no reassociation, no approximate
// reciprocals), so that any instruction set gives the same bits: +, -, *, / and √ are correctly
// rounded everywhere.
//
// One source, update_kernels.inc, is compiled once per instruction set into a table of functions;
// instruction_set.h chooses a table at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// One block of at most 1,024 floats of a chunk. None of the ranges overlap, but that next_state may
// be state.
struct UpdateBlock {
  size_t count = 0;
  const float* gradient = nullptr;
  const float* addend = nullptr;   // of an UpdateKernel: the gradient is gradient + addend
  const float* weights = nullptr;  // W(v)
  float* next_weights = nullptr;   // W(v + 1)
  // As the last update left it, and as this one does; see each kernel.
  const float* state[2] = {nullptr, nullptr};
  float* next_state[2] = {nullptr, nullptr};
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

// Writes next_weights and next_state. Nonzero if a new weight, or a second moment (which would
// silence its weight for ever), is not finite. A gradient that is not finite always makes one of
// them so.
using UpdateKernel = uint32_t (*)(const UpdateBlock&, const UpdateCoefficients&);

struct NamedUpdateKernel {
  const char* optimizer;  // as Optimizer.Type has it; null: none
  UpdateKernel kernel;
};

constexpr size_t kLineFloats = 16;

// All functions of the pass for one instruction set. Any length, any alignment of 4 bytes.
struct UpdateKernelTable {
  const char* name;  // as server.instruction_set: "SCALAR", "AVX2", "AVX512"

  // sum ← left + right. `sum` may be the same place as either, never overlaps it otherwise.
  void (*add)(const float* left, const float* right, float* sum, size_t count);

  NamedUpdateKernel updates[16];  // of each optimizer; the last ones are empty

  // w ← w + momentum (s - w), s being in the gradient's place.
  uint32_t (*statistic)(const UpdateBlock& block, float momentum);
  // w ← w. Nonzero if the gradient, of which no use is made, is not finite.
  uint32_t (*keep_frozen)(const UpdateBlock& block);

  // next ← decay average + one_minus_decay w; `next` may be `average`.
  void (*average)(const float* weights, const float* average, float* next, size_t count,
                  float decay, float one_minus_decay);

  // to ← from, each value cut to [-limit, limit]; an infinity or a NaN stays one. May be in place.
  // Nonzero if a value is not finite.
  uint32_t (*clip_values)(const float* from, float* to, size_t count, float limit);
  // to ← from * factor. May be in place.
  void (*scale)(const float* from, float* to, size_t count, float factor);
  // to ← from. Nonzero if a value is not finite.
  uint32_t (*copy_finite)(const float* from, float* to, size_t count);

  // squares[i] = the sum of the squares of floats [16 i, 16 i + 16), in double, for count / 16
  // lines. In a fixed order: (f_j² + f_{j+8}²) for j = 0 … 7, then halves on halves.
  void (*line_squares)(const float* from, double* squares, size_t count);

  // to ← from, for floats that nobody reads before much else was written: their lines are not read
  // from memory first, and displace nothing in the cache. Followed by fence_streams before anybody
  // is told that they are there. 64-byte aligned places are fastest.
  void (*stream_out)(const float* from, float* to, size_t count);
  void (*fence_streams)();
};

}  // namespace muster
