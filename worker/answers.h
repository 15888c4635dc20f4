// The options of muster-worker that print results for the launcher, as lines of JSON on standard
// output.
#pragma once

#include "worker/arguments.h"

namespace muster {

// --memory: prints a line for each part of this worker's memory. The last part is measured: this
// process has made all kernels but holds no arrays, so it is as large as a worker without its
// arrays.
void PrintMemory(const WorkerArguments& arguments);

// --predict: prints a line for each sample as soon as it is computed.
void PrintPredictions(const WorkerArguments& arguments);
// --images: prints a line for each photo, including unreadable ones.
void PrintImagePredictions(const WorkerArguments& arguments);

// --evaluate: prints a line for each block of the set, in any order.
void PrintEvaluation(const WorkerArguments& arguments);

// --describe-gpu: prints the GPU, the versions of CUDA, cuBLAS and cuDNN, and the precision. Before
// that, compares the GPU's results with the CPU's for the layers of the config or, without a
// config, of a small network. Throws Error(kFailure) if there is no GPU or CUDA does not work, and
// Error(kRefused) if the GPU's results are wrong.
void PrintGpu(const WorkerArguments& arguments);

}  // namespace muster
