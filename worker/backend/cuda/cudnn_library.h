// cuDNN is optional, both when the backend is built (no_cudnn.cc) and when it runs.
#pragma once

#include <driver_types.h>

#include <memory>
#include <string>

namespace muster::cuda {

class Cudnn;

// Returns null if the library is missing or not version 9. Unless it is `required`, also returns
// null, with a log line, if it does not work with this GPU or lacks sublibraries.
std::shared_ptr<const Cudnn> FindCudnn(cudaStream_t stream, bool required);
std::string VersionOf(const Cudnn& cudnn);
// Reason and advice if there is none.
std::string WhyNoCudnn();

}  // namespace muster::cuda
