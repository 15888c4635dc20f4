// The interface between muster-worker and libmuster_cuda.so, which the worker loads if the config
// selects CUDA: options, result, and symbol names. Both must be built from the same sources; the
// worker checks this.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>

#include "common/base/log.h"
#include "worker/backend/backend.h"
#include "worker/backend/gpu_adder.h"

namespace muster {

struct CudaOptions {
  enum class Precision { kFp32, kTf32, kBf16, kFp16 };
  enum class Convolution { kAuto, kGemm, kCudnn };
  Precision precision = Precision::kFp32;
  Convolution convolution = Convolution::kAuto;
  // The index among the GPUs in CUDA_VISIBLE_DEVICES, modulo their number.
  int card = 0;
  bool graphs = true;          // record repeated work as CUDA graphs
  double memory_fraction = 1;  // the share of the GPU's memory that this worker may use
  // The memory that im2col may use for one product. It uses more if a single image needs more.
  int64_t columns_bytes = int64_t{64} << 20;
  double drain_s = 300;  // time limit of Backend::Drain; after it the process ends
  // Writes to the worker's log. If null, lines are written to standard error.
  void (*log)(LogLevel level, const std::string& line) = nullptr;

  void Log(LogLevel level, const std::string& line) const {
    log != nullptr ? log(level, line) : fmt::print(stderr, "{}\n", line);
  }
};

struct CudaWorker {
  std::unique_ptr<Backend> backend;
  // Describes what the bits depend on, like CpuArithmetic.
  std::string arithmetic;
};

// Makes a relay's adder. Throws Error if there is no driver or no GPU.
constexpr const char* kCudaPluginAdderName = "muster_cuda_make_adder";
using CudaPluginAdder = void(const CudaOptions& options, std::unique_ptr<GpuAdder>& made);

// muster_cuda_plugin_build() returns the plugin's kCudaSources (cuda_sources.h), a hash of the
// backend's sources and its interface.
constexpr const char* kCudaPluginBuildName = "muster_cuda_plugin_build";
using CudaPluginBuild = const char*();
// Loads cuDNN by name, as the plugin will; false if it is not found.
constexpr const char* kCudaPluginOpenCudnnName = "muster_cuda_open_cudnn";
using CudaPluginOpenCudnn = bool();
// Makes the worker's backend. Throws Error if there is no driver or no GPU, or if a library does
// not work.
constexpr const char* kCudaPluginMakeName = "muster_cuda_make_worker";
using CudaPluginMake = void(const CudaOptions& options, CudaWorker& made);

}  // namespace muster
