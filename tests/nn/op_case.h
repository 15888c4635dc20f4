// Runs one op of the CPU backend and the oracle on the same random numbers, and compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/arena.h"
#include "tests/nn/reference.h"
#include "worker/backend/backend.h"

namespace muster {

struct OpCase {
  std::string layer;  // conv2d { filters: 3 kernel: 5 }
  Shape input;
  int64_t batch = 1;
  bool fuse_relu = false;
  bool input_is_relu = false;
  bool input_gradient = true;
  double tolerance = 2e-6;  // of the relative L2 difference of each result
};

std::string Name(const OpCase& c);

// Expects output and all gradients of the op to agree with the oracle, and the same bits from a
// second run over buffers full of garbage.
void ExpectMatchesReference(Backend& backend, const OpCase& c);

// Numbers in [-1, 1) that depend on `place` and their index alone.
std::vector<float> RandomFloats(size_t count, uint32_t place);
reference::Doubles ToDoubles(std::span<const float> floats);
Arena ToArena(const std::vector<float>& floats);

// |a - b| / |b| in the 2-norm; |a| where b is zero.
double RelativeL2(std::span<const float> a, std::span<const double> b);

}  // namespace muster
