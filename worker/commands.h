// The subcommands of muster-worker. Each reads its own options and returns the exit code.
#pragma once

namespace muster {

// Takes part in a job.
int TrainCommand(int argc, char** argv);
// Takes part on behalf of a program that trains its own model, which is at the other end of a
// socket, until the program's end.
int ProgramCommand(int argc, char** argv);
// Connects the workers of this host to the server (worker/relay/relay.h), until it is no longer
// needed or has lost its connection.
int RelayCommand(int argc, char** argv);

// The following print lines of JSON on standard output, for the launcher.

// A line for each part of a worker's memory. The last part is measured: this process has made all
// kernels but holds no arrays, so it is as large as a worker without its arrays.
int MemoryCommand(int argc, char** argv);
// A line for each sample as soon as it is computed, or for each photo, including unreadable ones.
int PredictCommand(int argc, char** argv);
// A line for each block of the set, in any order.
int EvaluateCommand(int argc, char** argv);
// The GPU, the versions of CUDA, cuBLAS and cuDNN, and the precision. Before that, compares the
// GPU's results with the CPU's for the layers of the config or, without a config, of a small
// network. Ends with kFailure if there is no GPU or CUDA does not work, and with kRefused if the
// GPU's results are wrong.
int DescribeGpuCommand(int argc, char** argv);

}  // namespace muster
