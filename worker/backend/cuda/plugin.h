// The interface between muster-worker and libmuster_cuda.so, which it loads if the config selects
// CUDA: options, result, and symbol names. Both must be built from the same sources, which is
// checked.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>

#include "common/base/log.h"
#include "worker/backend/backend.h"

namespace muster {

struct CudaOptions {
  enum class Precision { kFp32, kTf32, kBf16 };
  enum class Convolution { kAuto, kGemm, kCudnn };
  Precision precision = Precision::kFp32;
  Convolution convolution = Convolution::kAuto;
  // The index among the GPUs in CUDA_VISIBLE_DEVICES, modulo their number.
  int card = 0;
  double memory_fraction = 1;  // maximal share of the GPU's memory
  // The limit of im2col for one product; more if one image needs more.
  int64_t columns_bytes = int64_t{64} << 20;
  double drain_s = 300;  // limit of Backend::Drain; then the process ends
  // The worker's log. Null: standard error.
  void (*log)(LogLevel level, const std::string& line) = nullptr;

  void Log(LogLevel level, const std::string& line) const {
    log != nullptr ? log(level, line) : fmt::print(stderr, "{}\n", line);
  }
};

struct CudaWorker {
  std::unique_ptr<Backend> backend;
  // What the bits depend on, as text, like CpuArithmetic.
  std::string arithmetic;
};

// const char* muster_cuda_plugin_build(): kCudaSources of its build (cuda_sources.h), a hash of the
// backend's sources and of its interface.
constexpr const char* kCudaPluginBuildName = "muster_cuda_plugin_build";
using CudaPluginBuild = const char*();
// Makes the worker's backend. Throws Error: no driver, no GPU, a library that does not work.
constexpr const char* kCudaPluginMakeName = "muster_cuda_make_worker";
using CudaPluginMake = void(const CudaOptions& options, CudaWorker& made);

}  // namespace muster
