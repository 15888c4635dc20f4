// cuDNN is optional, both when the backend is built (no_cudnn.cc) and when it runs.
#pragma once

#include <driver_types.h>

#include <memory>
#include <string>

namespace muster::cuda {

class Cudnn;

// Returns null if the library is missing or not version 9. Unless cuDNN is `required`, also logs a
// line and returns null if cuDNN does not work with this GPU or lacks sublibraries.
std::shared_ptr<const Cudnn> FindCudnn(cudaStream_t stream, bool required);
std::string VersionOf(const Cudnn& cudnn);
// Explains why there is no cuDNN, with advice.
std::string WhyNoCudnn();

}  // namespace muster::cuda
