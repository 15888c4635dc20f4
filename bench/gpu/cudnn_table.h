// What cuDNN does with convolutions of our networks.
#pragma once

#include <string>

namespace muster::cuda {

struct CudnnTableOptions {
  int batch = 0;  // at most; 0: each shape's own
  int repeats = 7;
  std::string only;  // shapes whose names have this in them
};

// Prints a row for each shape, pass, type and algorithm. Throws Error without cuDNN, or when a
// number is wrong.
void PrintCudnnTable(const CudnnTableOptions& options);

}  // namespace muster::cuda
