// The CPU backend: dense layers and most convolutions by oneDNN, everything else by own kernels.
//
// Results have the same bits from run to run for the same number of threads, library and
// instruction set. Made and used by one thread; Enter sets flush-to-zero and denormals-are-zero in
// it and in its OpenMP threads, and leaves them set.
#pragma once

#include <memory>
#include <string>

#include "worker/backend/backend.h"

namespace muster {

struct CpuOptions {
  // False: convolutions are sums of products throughout; see worker.convolution in config.proto.
  bool winograd = true;
};

// `threads`: how many compute, the calling one included; at least 1.
std::unique_ptr<Backend> MakeCpuBackend(int threads, const CpuOptions& options = {});

// What its bits depend on, in words: "oneDNN 2.6.3 (AVX-512), 1 thread, convolutions AUTO".
std::string CpuArithmetic(int threads, const CpuOptions& options = {});

}  // namespace muster
