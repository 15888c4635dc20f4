// Replaces cudnn_table.cc in builds without cuDNN's headers.
#include "bench/gpu/cudnn_table.h"
#include "common/base/error.h"
#include "worker/backend/cuda/cudnn_library.h"

namespace muster::cuda {

void PrintCudnnTable(const CudnnTableOptions&) {
  throw Error(ExitCode::kFailure, "{}", WhyNoCudnn());
}

void PrintCudnnDevice() { throw Error(ExitCode::kFailure, "{}", WhyNoCudnn()); }

}  // namespace muster::cuda
