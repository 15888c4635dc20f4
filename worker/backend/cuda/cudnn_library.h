// cuDNN, where it is found: the backend works without, both when it is built (no_cudnn.cc) and when
// it runs.
#pragma once

#include <driver_types.h>

#include <memory>
#include <string>

namespace muster::cuda {

class Cudnn;

// Null where the library is not there or not version 9, and, unless it is required, where it does
// not work with this card or lacks parts of its own; a line then says so.
std::shared_ptr<const Cudnn> FindCudnn(cudaStream_t stream, bool required);
std::string VersionOf(const Cudnn& cudnn);
// Where there is none: what is missing, and what to do.
std::string WhyNoCudnn();

}  // namespace muster::cuda
