// Helpers for the kernels that do not use oneDNN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/backend/cpu/team.h"

namespace muster::cpu {

// Calls body(i) for each of n independent elements.
template <typename Body>
void ForElements(int64_t n, const Body& body) {
  constexpr int64_t kBlock = 4096;
  ParallelFor((n + kBlock - 1) / kBlock, [&](int64_t block) {
    const int64_t end = (block + 1) * kBlock < n ? (block + 1) * kBlock : n;
#pragma omp simd
    for (int64_t i = block * kBlock; i < end; ++i) body(i);
  });
}

// gradient[i] = 0 where relu_output[i] is not above zero.
template <typename T>
void MaskByRelu(T* gradient, const T* relu_output, int64_t n) {
  ForElements(n, [=](int64_t i) { gradient[i] = relu_output[i] > 0 ? float{gradient[i]} : 0.0f; });
}

}  // namespace muster::cpu
