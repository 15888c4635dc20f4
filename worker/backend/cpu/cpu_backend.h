// The CPU backend: oneDNN for dense layers and most convolutions, and our own kernels for
// everything else.
//
// Results are bit-identical from run to run for the same number of threads, library and instruction
// set. A backend is made and used by one thread; Enter sets flush-to-zero and denormals-are-zero in
// this thread and its OpenMP threads, and leaves them set.
#pragma once

#include <memory>
#include <string>

#include "worker/backend/backend.h"

namespace muster {

struct CpuOptions {
  // If false, all convolutions are plain sums of products; see worker.convolution in config.proto.
  bool winograd = true;
  // Activations, their gradients and the weights that convolutions and dense layers multiply by are
  // in bfloat16. Sums, statistics, losses, weights and their gradients are floats. Without
  // CpuHasBf16() oneDNN may have no such products: making their ops then throws an Error.
  bool bf16 = false;
};

// Whether the processor (AVX512-BF16) and oneDNN have products of bfloat16.
bool CpuHasBf16();

// `threads`: the number of compute threads, including the caller; at least 1.
std::unique_ptr<Backend> MakeCpuBackend(int threads, const CpuOptions& options = {});

// Describes what the bits depend on, for example "oneDNN 2.6.3 (AVX-512), 1 thread, convolutions
// AUTO".
std::string CpuArithmetic(int threads, const CpuOptions& options = {});

}  // namespace muster
