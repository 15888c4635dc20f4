// Between muster-worker and libmuster_cuda.so, which it loads when a config asks for CUDA: what the
// worker says, what it gets, and by which names. Both are of the same sources, which is checked.
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
  int card =
      0;  // among those that CUDA_VISIBLE_DEVICES leaves; counted around where there are fewer
  double memory_fraction = 1;  // of the card's memory, at most
  // The most memory of im2col for one product; more if one image needs more.
  int64_t columns_bytes = int64_t{64} << 20;
  double drain_s = 300;  // for Backend::Drain; then the process ends
  // The worker's log. Null: standard error.
  void (*log)(LogLevel level, const std::string& line) = nullptr;

  void Log(LogLevel level, const std::string& line) const {
    log != nullptr ? log(level, line) : fmt::print(stderr, "{}\n", line);
  }
};

struct CudaWorker {
  std::unique_ptr<Backend> backend;
  // What its bits depend on, in words, as CpuArithmetic.
  std::string arithmetic;
};

// const char* muster_cuda_plugin_build(): kCudaSources of its build (cuda_sources.h), a hash of the
// backend's sources and of its interface.
constexpr const char* kCudaPluginBuildName = "muster_cuda_plugin_build";
using CudaPluginBuild = const char*();
// Makes what is asked for. Throws Error: no driver, no card, a library that does not work.
constexpr const char* kCudaPluginMakeName = "muster_cuda_make_worker";
using CudaPluginMake = void(const CudaOptions& options, CudaWorker& made);

}  // namespace muster
