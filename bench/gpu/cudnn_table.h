// Measures cuDNN on the convolutions of our networks.
#pragma once

#include <string>

namespace muster::cuda {

struct CudnnTableOptions {
  int batch = 0;  // the largest batch; 0: each shape's own
  int repeats = 7;
  std::string only;  // measure only shapes whose names contain this
};

// Prints a row for each shape, pass, type and algorithm. Throws Error if cuDNN is missing or a
// result is wrong.
void PrintCudnnTable(const CudnnTableOptions& options);

// Prints cuDNN's description of this GPU, in JSON. With it cuDNN answers questions about engines
// and workspaces on a machine without a GPU.
void PrintCudnnDevice();

}  // namespace muster::cuda
