// What muster-worker prints instead of working: lines of JSON on standard output, for the launcher.
#pragma once

#include "worker/arguments.h"

namespace muster {

// --memory: a line for each row of what this worker would use. The last one is measured: with all
// kernels made, but none of the arrays, this process is as large as a worker is without them.
void PrintMemory(const WorkerArguments& arguments);

// --predict: a line for each sample, as soon as it is computed.
void PrintPredictions(const WorkerArguments& arguments);
// --images: the same for photos, also for those that cannot be read.
void PrintImagePredictions(const WorkerArguments& arguments);

// --evaluate: a line for each block of the set, in any order.
void PrintEvaluation(const WorkerArguments& arguments);

// --describe-gpu: the GPU that this process sees, the versions of CUDA, cuBLAS and cuDNN, and the
// precision, as text. First compares what the config's layers, or without a config a small
// network's, compute there with the CPU. Throws Error(kFailure) where there is no GPU, or CUDA does
// not work, and Error(kRefused) where the GPU computes wrongly.
void PrintGpu(const WorkerArguments& arguments);

}  // namespace muster
