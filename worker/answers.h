// The print options of muster-worker: lines of JSON on standard output, for the launcher.
#pragma once

#include "worker/arguments.h"

namespace muster {

// --memory: a line for each row of this worker's memory. The last row is measured: this process
// with all kernels made, but without the arrays, is as large as a worker without its arrays.
void PrintMemory(const WorkerArguments& arguments);

// --predict: a line for each sample as soon as it is computed.
void PrintPredictions(const WorkerArguments& arguments);
// --images: a line for each photo, including unreadable ones.
void PrintImagePredictions(const WorkerArguments& arguments);

// --evaluate: a line for each block of the set, in any order.
void PrintEvaluation(const WorkerArguments& arguments);

// --describe-gpu: prints the GPU, the versions of CUDA, cuBLAS and cuDNN, and the precision. First
// compares the results of the config's layers (without a config, of a small network) with the CPU.
// Throws Error(kFailure) if there is no GPU or CUDA does not work, and Error(kRefused) if the GPU's
// results are wrong.
void PrintGpu(const WorkerArguments& arguments);

}  // namespace muster
