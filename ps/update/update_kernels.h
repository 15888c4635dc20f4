// The arithmetic of the fused update on a block in the L1 cache. The loops round each operation
// separately (no contraction, no reassociation, no approximate reciprocals), so all instruction
// sets give the same bits: +, -, *, / and √ are correctly rounded everywhere.
//
// update_kernels.inc is compiled once per instruction set into a table of functions;
// instruction_set.h chooses a table at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// One block of at most 1,024 floats of a chunk. No ranges overlap, except that next_state may be
// state.
struct UpdateBlock {
  size_t count = 0;
  const float* gradient = nullptr;
  const float* addend = nullptr;   // for an UpdateKernel, the gradient is gradient + addend
  const float* weights = nullptr;  // W(v)
  float* next_weights = nullptr;   // W(v + 1)
  // The state before and after this update; the meaning depends on the kernel.
  const float* state[2] = {nullptr, nullptr};
  float* next_state[2] = {nullptr, nullptr};
};

struct UpdateCoefficients {
  float rate = 0;             // for Adam, divided by 1 - beta1^t
  float coupled_decay = 0;    // g ← gradient + coupled_decay w
  float decoupled_decay = 0;  // learning rate * weight decay
  float momentum = 0;
  float beta1 = 0, one_minus_beta1 = 1;
  float beta2 = 0, one_minus_beta2 = 1;
  float root_correction2 = 1;  // √(1 - beta2^t)
  float epsilon = 0;
};

// Writes next_weights and next_state. Returns nonzero if a new weight or a second moment is not
// finite (an infinite one would freeze its weight forever). A non-finite gradient always makes one
// of them non-finite.
using UpdateKernel = uint32_t (*)(const UpdateBlock&, const UpdateCoefficients&);

struct NamedUpdateKernel {
  const char* optimizer;  // name in Optimizer.Type, or null
  UpdateKernel kernel;
};

constexpr size_t kLineFloats = 16;

// The kernels of one instruction set. They accept any length; 4-byte alignment is enough.
struct UpdateKernelTable {
  const char* name;  // as in server.instruction_set: "SCALAR", "AVX2", "AVX512"

  // sum ← left + right. `sum` may be `left` or `right`, but must not overlap them otherwise.
  void (*add)(const float* left, const float* right, float* sum, size_t count);

  NamedUpdateKernel updates[16];  // by optimizer; unused entries are empty

  // w ← w + momentum (s - w), where s is passed as the gradient.
  uint32_t (*statistic)(const UpdateBlock& block, float momentum);
  // w ← w. Returns nonzero if the gradient, which is unused, is not finite.
  uint32_t (*keep_frozen)(const UpdateBlock& block);

  // next ← decay average + one_minus_decay w; `next` may be `average`.
  void (*average)(const float* weights, const float* average, float* next, size_t count,
                  float decay, float one_minus_decay);

  // to ← from, clipped to [-limit, limit]; infinities and NaNs stay. `to` may be `from`. Returns
  // nonzero if a value is not finite.
  uint32_t (*clip_values)(const float* from, float* to, size_t count, float limit);
  // to ← from * factor. `to` may be `from`.
  void (*scale)(const float* from, float* to, size_t count, float factor);
  // to ← from. Returns nonzero if a value is not finite.
  uint32_t (*copy_finite)(const float* from, float* to, size_t count);

  // squares[i] = the sum of the squares of floats [16 i, 16 i + 16), in double, for count / 16
  // lines. The order is fixed: (f_j² + f_{j+8}²) for j = 0 … 7, then halves added to halves.
  void (*line_squares)(const float* from, double* squares, size_t count);

  // to ← from, with non-temporal stores, for floats that are not read soon: their cache lines are
  // not fetched first and evict nothing. Call fence_streams before announcing the data. Fastest
  // with 64-byte alignment.
  void (*stream_out)(const float* from, float* to, size_t count);
  void (*fence_streams)();
};

}  // namespace muster
