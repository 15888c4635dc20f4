// Records the implementation of each pass of each convolution (chosen by Conv2dOp::Choose in
// conv2d.cc): own kernels, an algorithm of cuDNN, or im2col and cuBLAS. Implementations differ in
// bits, so workers compare one line (wire.Ready).
//
// Owned by the backend and used on its thread.
#pragma once

#include <map>
#include <string>

namespace muster::cuda {

class ConvolutionRecord {
 public:
  // `key` names the pass and the parameters of the convolution (ConvolutionKey).
  void Record(const std::string& key, const std::string& way) { ways_[key] = way; }
  // "convolutions: forward cudnn 1 x20, input cudnn 1 x19, weights cudnn 1 x18, weights gemm x2
  // (0123456789abcdef)": the count of each implementation, and the 64-bit FNV-1a hash of all keys
  // and implementations. Empty if there are no convolutions.
  std::string Line() const;

 private:
  std::map<std::string, std::string> ways_;
};

}  // namespace muster::cuda
