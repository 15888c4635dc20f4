// The software GPU computes the same convolution shapes as the real cuDNN, if that is installed.
// Its descriptors need no GPU.
#include <cudnn.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/cuda/software_gpu/control.h"
#include "tests/cuda/software_gpu/random.h"

namespace muster::software_gpu {
namespace {

class RealCudnn {
 public:
  RealCudnn() {
    for (const char* name : {"libcudnn.so.9", "/usr/local/cuda/lib/libcudnn.so.9",
                             "/usr/local/cuda/lib64/libcudnn.so.9"}) {
      if (library_ == nullptr) library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
  }
  bool is_there() const { return library_ != nullptr; }
  template <typename F>
  F* Find(const char* name, F*) const {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }

 private:
  void* library_ = nullptr;  // never closed
};

// The functions that compute shapes, of the software GPU or a library.
struct ShapeFunctions {
#define MUSTER_SHAPE_FUNCTIONS(X)      \
  X(cudnnCreateTensorDescriptor)       \
  X(cudnnDestroyTensorDescriptor)      \
  X(cudnnSetTensor4dDescriptor)        \
  X(cudnnCreateFilterDescriptor)       \
  X(cudnnDestroyFilterDescriptor)      \
  X(cudnnSetFilter4dDescriptor)        \
  X(cudnnCreateConvolutionDescriptor)  \
  X(cudnnDestroyConvolutionDescriptor) \
  X(cudnnSetConvolution2dDescriptor)   \
  X(cudnnSetConvolutionGroupCount)     \
  X(cudnnGetConvolution2dForwardOutputDim)
#define MUSTER_MEMBER(NAME) decltype(&::NAME) NAME = &::NAME;
  MUSTER_SHAPE_FUNCTIONS(MUSTER_MEMBER)
#undef MUSTER_MEMBER

  static ShapeFunctions Of(const RealCudnn& real) {
    ShapeFunctions functions;
#define MUSTER_FIND(NAME) functions.NAME = real.Find(#NAME, &::NAME);
    MUSTER_SHAPE_FUNCTIONS(MUSTER_FIND)
#undef MUSTER_FIND
    return functions;
  }
};

// A random convolution.
struct ShapeCase {
  explicit ShapeCase(uint64_t seed) : seed_(seed) {}
  int Random(uint64_t which, int least, int most) const {
    const auto range = static_cast<uint64_t>(most - least + 1);
    return least + static_cast<int>(Mix(seed_ * 100 + which) % range);
  }

  // Returns the library's status and the four dimensions.
  std::array<int, 5> Output(const ShapeFunctions& with) const {
    cudnnTensorDescriptor_t x = nullptr;
    cudnnFilterDescriptor_t w = nullptr;
    cudnnConvolutionDescriptor_t convolution = nullptr;
    with.cudnnCreateTensorDescriptor(&x);
    with.cudnnCreateFilterDescriptor(&w);
    with.cudnnCreateConvolutionDescriptor(&convolution);
    const int groups = Random(0, 1, 2);
    const int channels = Random(1, 1, 3);
    with.cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, Random(2, 1, 3),
                                    channels * groups, Random(3, 4, 9), Random(4, 4, 9));
    with.cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC,
                                    groups * Random(5, 1, 3), channels, Random(6, 1, 4),
                                    Random(7, 1, 4));
    with.cudnnSetConvolution2dDescriptor(convolution, Random(8, 0, 2), Random(9, 0, 2),
                                         Random(10, 1, 3), Random(11, 1, 3), 1, 1,
                                         CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    with.cudnnSetConvolutionGroupCount(convolution, groups);
    std::array<int, 5> output = {};
    output[0] = with.cudnnGetConvolution2dForwardOutputDim(convolution, x, w, &output[1],
                                                           &output[2], &output[3], &output[4]);
    with.cudnnDestroyTensorDescriptor(x);
    with.cudnnDestroyFilterDescriptor(w);
    with.cudnnDestroyConvolutionDescriptor(convolution);
    return output;
  }

 private:
  const uint64_t seed_;
};

TEST(CudnnShapesTest, AreThoseOfTheRealLibrary) {
  const RealCudnn real;
  if (!real.is_there()) GTEST_SKIP() << "libcudnn.so.9 is not installed";
  const ShapeFunctions theirs = ShapeFunctions::Of(real);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const ShapeCase one(seed);
    EXPECT_EQ(one.Output(ShapeFunctions()), one.Output(theirs)) << "case " << seed;
    EXPECT_EQ(one.Output(theirs)[0], CUDNN_STATUS_SUCCESS);
  }
}

}  // namespace
}  // namespace muster::software_gpu
