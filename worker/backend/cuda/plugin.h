// Between muster-worker and libmuster_cuda.so, which it loads when a config asks for CUDA: what the
// worker says, what it gets, and by which names. Both are of one build, which is checked.
#pragma once

#include <memory>
#include <string>

#include "worker/backend/backend.h"

namespace muster {

struct CudaOptions {
  enum class Precision { kFp32, kTf32, kBf16 };
  enum class Convolution { kAuto, kGemm, kCudnn };
  Precision precision = Precision::kFp32;
  Convolution convolution = Convolution::kAuto;
  int card =
      0;  // among those that CUDA_VISIBLE_DEVICES leaves; counted around where there are fewer
  double memory_fraction = 1;  // of the card's memory, at most
  bool autotune = false;       // Backend::tuning() is there
};

struct CudaWorker {
  std::unique_ptr<Backend> backend;
  // What its bits depend on, in words, as CpuArithmetic.
  std::string arithmetic;
};

// Changes with every change of what both sides see: worker/backend/*.h, common/graph, this.
constexpr int kCudaPluginVersion = 3;

// int muster_cuda_plugin_version(): kCudaPluginVersion of its build.
constexpr const char* kCudaPluginVersionName = "muster_cuda_plugin_version";
using CudaPluginVersion = int();
// Makes what is asked for. Throws Error: no driver, no card, a library that does not work.
constexpr const char* kCudaPluginMakeName = "muster_cuda_make_worker";
using CudaPluginMake = void(const CudaOptions& options, CudaWorker& made);

}  // namespace muster
