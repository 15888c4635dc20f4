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
};

// `threads`: the number of compute threads, including the caller; at least 1.
std::unique_ptr<Backend> MakeCpuBackend(int threads, const CpuOptions& options = {});

// Describes what the bits depend on, for example "oneDNN 2.6.3 (AVX-512), 1 thread, convolutions
// AUTO".
std::string CpuArithmetic(int threads, const CpuOptions& options = {});

}  // namespace muster
