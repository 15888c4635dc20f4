// A record of which way each pass of each convolution goes (Conv2dOp::Choose in conv2d.cc decides):
// own kernels, an algorithm of cuDNN's, or im2col and cuBLAS. Other ways give other bits, so
// workers tell each other by one line (wire.Ready).
//
// Owner and thread: the backend's.
#pragma once

#include <map>
#include <string>

namespace muster::cuda {

class ConvolutionRecord {
 public:
  // `key`: the pass and the numbers of the convolution (ConvolutionKey).
  void Record(const std::string& key, const std::string& way) { ways_[key] = way; }
  // "convolutions: forward cudnn 1 x20, input cudnn 1 x19, weights cudnn 1 x18, weights gemm x2
  // (0123456789abcdef)": how often each way is taken, and the FNV-1a of all keys and ways, 64 bits.
  // Empty: there are no convolutions.
  std::string Line() const;

 private:
  std::map<std::string, std::string> ways_;
};

}  // namespace muster::cuda
