#include "bench/gpu/cudnn_table.h"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "bench/gpu/bench_device.h"
#include "common/base/error.h"
#include "worker/backend/cuda/cudnn.h"
#include "worker/backend/cuda/cudnn_library.h"

namespace muster::cuda {
namespace {

// A convolution with square images and kernels, padded so that stride 1 preserves the size.
struct Problem {
  const char* name;
  int batch, side, channels, filters, kernel, stride;

  int pad() const { return kernel / 2; }
  int out_side() const { return (side + 2 * pad() - kernel) / stride + 1; }
  int64_t inputs() const { return int64_t{batch} * side * side * channels; }
  int64_t outputs() const { return int64_t{batch} * out_side() * out_side() * filters; }
  int64_t weights() const { return int64_t{filters} * kernel * kernel * channels; }
  double flops() const { return 2.0 * static_cast<double>(outputs()) * kernel * kernel * channels; }
};

constexpr Problem kProblems[] = {
    {"tutorial, first", 128, 24, 3, 64, 5, 1},
    {"tutorial, second", 128, 12, 64, 64, 5, 1},
    {"resnet 32, 64 channels", 512, 32, 64, 64, 3, 1},
    {"resnet 32, 128 to 256", 512, 16, 128, 256, 3, 2},
    {"resnet 32, 512 channels", 512, 4, 512, 512, 3, 1},
    {"resnet 32, projection", 512, 32, 64, 128, 1, 2},
    {"resnet 224, first", 64, 224, 3, 64, 7, 2},
    {"resnet 224, 64 channels", 64, 56, 64, 64, 3, 1},
    // 1x1 convolutions, half of ResNet-50's work. There is no depthwise one: Muster's own kernels
    // do those.
    {"resnet 224, 64 to 256", 32, 56, 64, 256, 1, 1},
    {"resnet 224, 256 channels", 256, 14, 256, 256, 3, 1},
    {"resnet 224, 1024 to 256", 64, 14, 1024, 256, 1, 1},
};

struct Type {
  const char* name;
  cudnnDataType_t tensors, weights;
  cudnnMathType_t math;
  bool only_weights;
  double most_error;  // relative to the root mean square

  size_t bytes() const { return tensors == CUDNN_DATA_FLOAT ? 4 : 2; }
  size_t weight_bytes() const { return weights == CUDNN_DATA_FLOAT ? 4 : 2; }
};
constexpr cudnnDataType_t kFloat = CUDNN_DATA_FLOAT, kBf16 = CUDNN_DATA_BFLOAT16;
constexpr Type kTypes[] = {
    {"FP32", kFloat, kFloat, CUDNN_FMA_MATH, false, 5e-3},
    {"TF32", kFloat, kFloat, CUDNN_TENSOR_OP_MATH, false, 2e-2},
    {"BF16", kBf16, kBf16, CUDNN_TENSOR_OP_MATH, false, 5e-2},
    {"FP16", CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_TENSOR_OP_MATH, false, 1e-2},
    {"BF16, weights FP32", kBf16, kFloat, CUDNN_TENSOR_OP_MATH, true, 5e-2},
};

// cuDNN's deterministic algorithms. The direct one is omitted for forward, because cuDNN does not
// implement it. Some are omitted for the gradients, because they add in random order.
constexpr cudnnConvolutionFwdAlgo_t kForward[] = {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_FFT,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED};
constexpr cudnnConvolutionBwdDataAlgo_t kInputGradient[] = {
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED};
constexpr cudnnConvolutionBwdFilterAlgo_t kWeightsGradient[] = {
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING};

// The salts of InputAt.
constexpr uint32_t kInput = 0, kWeights = 1, kGradient = 2;

// The functions below compute element i of a pass's result with plain loops.
double OutputOf(const Problem& p, int64_t i) {
  const int64_t f = i % p.filters, pixel = i / p.filters, out = p.out_side();
  const int64_t x = pixel % out, y = pixel / out % out, n = pixel / out / out;
  double sum = 0;
  for (int64_t tap = 0; tap < int64_t{p.kernel} * p.kernel; ++tap) {
    const int64_t iy = y * p.stride - p.pad() + tap / p.kernel;
    const int64_t ix = x * p.stride - p.pad() + tap % p.kernel;
    if (iy < 0 || iy >= p.side || ix < 0 || ix >= p.side) continue;
    for (int64_t c = 0; c < p.channels; ++c) {
      const int64_t in = ((n * p.side + iy) * p.side + ix) * p.channels + c;
      const int64_t w = (f * p.kernel * p.kernel + tap) * p.channels + c;
      sum += double{InputAt(in, kInput)} * InputAt(w, kWeights);
    }
  }
  return sum;
}

double InputGradientOf(const Problem& p, int64_t i) {
  const int64_t c = i % p.channels, pixel = i / p.channels, out = p.out_side();
  const int64_t x = pixel % p.side, y = pixel / p.side % p.side, n = pixel / p.side / p.side;
  double sum = 0;
  for (int64_t tap = 0; tap < int64_t{p.kernel} * p.kernel; ++tap) {
    const int64_t oy = y + p.pad() - tap / p.kernel, ox = x + p.pad() - tap % p.kernel;
    if (oy < 0 || ox < 0 || oy % p.stride != 0 || ox % p.stride != 0) continue;
    if (oy / p.stride >= out || ox / p.stride >= out) continue;
    for (int64_t f = 0; f < p.filters; ++f) {
      const int64_t to = ((n * out + oy / p.stride) * out + ox / p.stride) * p.filters + f;
      const int64_t w = (f * p.kernel * p.kernel + tap) * p.channels + c;
      sum += double{InputAt(to, kGradient)} * InputAt(w, kWeights);
    }
  }
  return sum;
}

double WeightsGradientOf(const Problem& p, int64_t i) {
  const int64_t c = i % p.channels, out = p.out_side();
  const int64_t tap = i / p.channels % (int64_t{p.kernel} * p.kernel);
  const int64_t f = i / p.channels / p.kernel / p.kernel;
  double sum = 0;
  for (int64_t pixel = 0; pixel < p.batch * out * out; ++pixel) {
    const int64_t x = pixel % out, y = pixel / out % out, n = pixel / out / out;
    const int64_t iy = y * p.stride - p.pad() + tap / p.kernel;
    const int64_t ix = x * p.stride - p.pad() + tap % p.kernel;
    if (iy < 0 || iy >= p.side || ix < 0 || ix >= p.side) continue;
    const int64_t in = ((n * p.side + iy) * p.side + ix) * p.channels + c;
    sum += double{InputAt(in, kInput)} * InputAt(pixel * p.filters + f, kGradient);
  }
  return sum;
}

class Descriptors {
 public:
  Descriptors(const Cudnn& cudnn, const Problem& p, const Type& type) : cudnn_(cudnn) {
    cudnn.Check(cudnn->cudnnCreateTensorDescriptor(&in), "describe a tensor");
    cudnn.Check(cudnn->cudnnCreateTensorDescriptor(&out), "describe a tensor");
    cudnn.Check(cudnn->cudnnCreateFilterDescriptor(&weights), "describe filters");
    cudnn.Check(cudnn->cudnnCreateConvolutionDescriptor(&convolution), "describe a convolution");
    cudnn.Check(cudnn->cudnnSetTensor4dDescriptor(in, CUDNN_TENSOR_NHWC, type.tensors, p.batch,
                                                  p.channels, p.side, p.side),
                "describe a tensor");
    cudnn.Check(cudnn->cudnnSetTensor4dDescriptor(out, CUDNN_TENSOR_NHWC, type.tensors, p.batch,
                                                  p.filters, p.out_side(), p.out_side()),
                "describe a tensor");
    cudnn.Check(cudnn->cudnnSetFilter4dDescriptor(weights, type.weights, CUDNN_TENSOR_NHWC,
                                                  p.filters, p.channels, p.kernel, p.kernel),
                "describe filters");
    cudnn.Check(
        cudnn->cudnnSetConvolution2dDescriptor(convolution, p.pad(), p.pad(), p.stride, p.stride, 1,
                                               1, CUDNN_CROSS_CORRELATION, kFloat),
        "describe a convolution");
    cudnn.Check(cudnn->cudnnSetConvolutionMathType(convolution, type.math), "set its arithmetic");
  }
  ~Descriptors() {
    (void)cudnn_->cudnnDestroyConvolutionDescriptor(convolution);
    (void)cudnn_->cudnnDestroyFilterDescriptor(weights);
    (void)cudnn_->cudnnDestroyTensorDescriptor(out);
    (void)cudnn_->cudnnDestroyTensorDescriptor(in);
  }
  Descriptors(const Descriptors&) = delete;

  cudnnTensorDescriptor_t in{}, out{};
  cudnnFilterDescriptor_t weights{};
  cudnnConvolutionDescriptor_t convolution{};

 private:
  const Cudnn& cudnn_;
};

// The tensors of a problem in one type. The pass writes to `result`.
struct Arrays {
  Arrays(BenchDevice& device, const Problem& p, const Type& type) {
    in = Make(device, type.tensors, p.inputs(), kInput);
    out = Make(device, type.tensors, p.outputs(), kGradient);
    weights = Make(device, type.weights, p.weights(), kWeights);
    const int64_t most = std::max({p.inputs(), p.outputs(), p.weights()});
    result = device.Allocate<float>(most);
  }
  static void* Make(BenchDevice& device, cudnnDataType_t type, int64_t count, uint32_t salt) {
    const auto value = [salt](int64_t i) { return InputAt(i, salt); };
    if (type == kFloat) return device.Make<float>(count, value);
    if (type == CUDNN_DATA_HALF) return device.Make<Fp16>(count, value);
    return device.Make<Bf16>(count, value);
  }
  void *in, *out, *weights, *result;
};

struct Pass {
  const char* name;
  int algorithm;
  int64_t count;  // number of elements of the result
  cudnnDataType_t result_type;
  std::function<cudnnStatus_t(size_t*)> workspace;
  std::function<cudnnStatus_t(void*, size_t)> run;
  std::function<double(int64_t)> expected;
};

constexpr float kOne = 1, kZero = 0;

std::vector<Pass> PassesOf(const Cudnn& cudnn, const Problem& p, const Type& type,
                           const Descriptors& d, const Arrays& a) {
  std::vector<Pass> passes;
  const cudnnHandle_t handle = cudnn.handle();
  for (const cudnnConvolutionFwdAlgo_t with : kForward) {
    if (type.only_weights) break;
    passes.push_back({"forward", with, p.outputs(), type.tensors,
                      [=, &cudnn, &d](size_t* bytes) {
                        return cudnn->cudnnGetConvolutionForwardWorkspaceSize(
                            handle, d.in, d.weights, d.convolution, d.out, with, bytes);
                      },
                      [=, &cudnn, &d](void* at, size_t bytes) {
                        return cudnn->cudnnConvolutionForward(handle, &kOne, d.in, a.in, d.weights,
                                                              a.weights, d.convolution, with, at,
                                                              bytes, &kZero, d.out, a.result);
                      },
                      [p](int64_t i) { return OutputOf(p, i); }});
  }
  for (const cudnnConvolutionBwdDataAlgo_t with : kInputGradient) {
    if (type.only_weights) break;
    passes.push_back({"input gradient", with, p.inputs(), type.tensors,
                      [=, &cudnn, &d](size_t* bytes) {
                        return cudnn->cudnnGetConvolutionBackwardDataWorkspaceSize(
                            handle, d.weights, d.out, d.convolution, d.in, with, bytes);
                      },
                      [=, &cudnn, &d](void* at, size_t bytes) {
                        return cudnn->cudnnConvolutionBackwardData(
                            handle, &kOne, d.weights, a.weights, d.out, a.out, d.convolution, with,
                            at, bytes, &kZero, d.in, a.result);
                      },
                      [p](int64_t i) { return InputGradientOf(p, i); }});
  }
  for (const cudnnConvolutionBwdFilterAlgo_t with : kWeightsGradient) {
    passes.push_back({"weights gradient", with, p.weights(), type.weights,
                      [=, &cudnn, &d](size_t* bytes) {
                        return cudnn->cudnnGetConvolutionBackwardFilterWorkspaceSize(
                            handle, d.in, d.out, d.convolution, d.weights, with, bytes);
                      },
                      [=, &cudnn, &d](void* at, size_t bytes) {
                        return cudnn->cudnnConvolutionBackwardFilter(
                            handle, &kOne, d.in, a.in, d.out, a.out, d.convolution, with, at, bytes,
                            &kZero, d.weights, a.result);
                      },
                      [p](int64_t i) { return WeightsGradientOf(p, i); }});
  }
  return passes;
}

// Muster uses this algorithm for each pass; the others are for comparison.
constexpr int kOurs = 1;

class Table {
 public:
  explicit Table(const CudnnTableOptions& options)
      : options_(options), cudnn_(FindCudnn(device_.stream(), true)) {
    if (cudnn_ == nullptr) throw Error(ExitCode::kFailure, "{}", WhyNoCudnn());
    // With kernels for an older kind of GPU, 3x3x256 has less than about 0.6 of it.
    product_ = Product(options.batch > 0 ? 256 : 8192);
    fmt::print(
        "cuDNN {}; a large product by cuBLAS in BF16 has {:.1f} TFLOP/s\n\n"
        "| shape | pass | type | algorithm | cuDNN status | workspace MiB | ms | TFLOP/s | "
        "of the product | same bits twice | error |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n",
        VersionOf(*cudnn_), product_);
  }

  void Rows(const Problem& problem, const Type& type) {
    const Descriptors descriptors(*cudnn_, problem, type);
    const Arrays arrays(device_, problem, type);
    for (const Pass& pass : PassesOf(*cudnn_, problem, type, descriptors, arrays)) {
      fmt::print("| {} | {} | {} | {} | ", problem.name, pass.name, type.name, pass.algorithm);
      Row(problem, type, pass, arrays.result);
      (void)std::fflush(stdout);
    }
    device_.FreeAll();
  }
  int rows() const { return rows_; }
  int wrong() const { return wrong_; }

 private:
  void Row(const Problem& problem, const Type& type, const Pass& pass, void* result) {
    ++rows_;
    size_t bytes = 0;
    cudnnStatus_t status = pass.workspace(&bytes);
    const auto refused = [&] {
      fmt::print("{} | | | | | | |\n", (*cudnn_)->cudnnGetErrorString(status));
    };
    if (status != CUDNN_STATUS_SUCCESS) return refused();
    void* memory = nullptr;
    if (bytes > 0 && cudaMalloc(&memory, bytes) != cudaSuccess) {
      (void)cudaGetLastError();
      return fmt::print("out of memory | {:.1f} | | | | | |\n",
                        static_cast<double>(bytes) / 0x1p20);
    }
    const DeviceMemory workspace(memory);
    const size_t size = static_cast<size_t>(pass.count) * (pass.result_type == kFloat ? 4 : 2);
    const auto run = [&] {
      device_.Poison(result, size);
      status = pass.run(workspace.get(), bytes);
      if (status != CUDNN_STATUS_SUCCESS) return std::vector<float>();
      return Result(pass, result);
    };
    const std::vector<float> first = run();
    if (status != CUDNN_STATUS_SUCCESS) return refused();
    const bool same = first == run();
    const double error = ErrorOf(pass, first);
    const double seconds = device_.MedianSeconds(
        [&] { cudnn_->Check(pass.run(workspace.get(), bytes), "convolve"); }, options_.repeats);
    const bool wrong = !(error <= type.most_error);
    if (pass.algorithm == kOurs && (wrong || !same)) ++wrong_;
    const double rate = problem.flops() / seconds * 1e-12;
    fmt::print("ok | {:.1f} | {:.3f} | {:.1f} | {:.2f} | {} | {:.1e}{} |\n",
               static_cast<double>(bytes) / 0x1p20, seconds * 1e3, rate, rate / product_,
               same ? "yes" : "NO", error, wrong ? " WRONG" : "");
  }

  // TFLOP/s of a product of two square matrices in BF16.
  double Product(int side) {
    const int64_t count = int64_t{side} * side;
    const auto value = [](int64_t i) { return InputAt(i, kInput); };
    auto* const a = device_.Make<Bf16>(count, value);
    auto* const b = device_.Make<Bf16>(count, value);
    auto* const c = device_.Allocate<Bf16>(count);
    cublasHandle_t made{};
    Check(cublasCreate(&made), "start cuBLAS");
    const CublasHandle cublas(made);
    Check(cublasSetStream(made, device_.stream()), "set the stream of cuBLAS");
    constexpr size_t kWorkspace = size_t{32} << 20;
    Check(cublasSetWorkspace(made, device_.Allocate<std::byte>(kWorkspace), kWorkspace),
          "set the workspace of cuBLAS");
    Check(cublasSetMathMode(
              made, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                              CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
          "set up cuBLAS");
    const double seconds = device_.MedianSeconds(
        [&] {
          Check(cublasGemmEx(made, CUBLAS_OP_N, CUBLAS_OP_N, side, side, side, &kOne, a,
                             CUDA_R_16BF, side, b, CUDA_R_16BF, side, &kZero, c, CUDA_R_16BF, side,
                             CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                "multiply");
        },
        options_.repeats);
    device_.FreeAll();
    return 2.0 * static_cast<double>(count) * side / seconds * 1e-12;
  }

  std::vector<float> Result(const Pass& pass, const void* at) const {
    if (pass.result_type == kFloat) {
      return device_.Numbers(static_cast<const float*>(at), pass.count);
    }
    if (pass.result_type == CUDNN_DATA_HALF) {
      return device_.Numbers(static_cast<const Fp16*>(at), pass.count);
    }
    return device_.Numbers(static_cast<const Bf16*>(at), pass.count);
  }

  // Returns the largest error of some sampled elements compared with plain loops, relative to their
  // root mean square. NaN if any element is not finite.
  static double ErrorOf(const Pass& pass, const std::vector<float>& got) {
    for (const float number : got) {
      if (!std::isfinite(number)) return NAN;
    }
    constexpr int64_t kSamples = 24;
    double largest = 0, squares = 0;
    for (int64_t s = 0; s < kSamples; ++s) {
      const int64_t i = (pass.count - 1) * s / (kSamples - 1);
      const double expected = pass.expected(i);
      largest = std::max(largest, std::abs(got[static_cast<size_t>(i)] - expected));
      squares += expected * expected / kSamples;
    }
    return largest / std::sqrt(squares);
  }

  const CudnnTableOptions options_;
  BenchDevice device_;
  const std::shared_ptr<const Cudnn> cudnn_;
  double product_ = 0;  // TFLOP/s
  int rows_ = 0, wrong_ = 0;
};

}  // namespace

void PrintCudnnTable(const CudnnTableOptions& options) {
  Table table(options);
  for (Problem problem : kProblems) {
    if (std::string(problem.name).find(options.only) == std::string::npos) continue;
    if (options.batch > 0) problem.batch = std::min(problem.batch, options.batch);
    for (const Type& type : kTypes) table.Rows(problem, type);
  }
  if (table.rows() == 0) {
    throw Error(ExitCode::kUsage, "--only: no shape name contains \"{}\"", options.only);
  }
  if (table.wrong() > 0) {
    throw Error(ExitCode::kFailure, "{} of {} rows are wrong", table.wrong(), table.rows());
  }
  fmt::print("{} rows, none of them wrong\n", table.rows());
}

}  // namespace muster::cuda
