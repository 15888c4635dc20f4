// Measures cuDNN with the convolutions of our networks.
#pragma once

#include <string>

namespace muster::cuda {

struct CudnnTableOptions {
  int batch = 0;  // maximum; 0: each shape's own
  int repeats = 7;
  std::string only;  // only shapes whose names contain this
};

// Prints a row for each shape, pass, type and algorithm. Throws Error without cuDNN or if a result
// is wrong.
void PrintCudnnTable(const CudnnTableOptions& options);

}  // namespace muster::cuda
