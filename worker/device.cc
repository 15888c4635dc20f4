#include "worker/device.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>

#include "common/base/error.h"
#include "common/base/log.h"
#include "proto/config.pb.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cuda/load_plugin.h"
#include "worker/nn/self_test.h"

namespace muster {
namespace {

// Whether the CPU can compute in worker.precision BF16. Otherwise it computes in FP32, if it may.
bool UsesBf16(const config::Worker& worker) {
  if (worker.precision() == config::Worker::FP32) return false;
  if (worker.precision() == config::Worker::TF32) {
    LogWarning("worker.precision=TF32 only applies to GPUs: computing in FP32");
    return false;
  }
  const bool fp16 = worker.precision() == config::Worker::FP16;
  if (!fp16 && CpuHasBf16()) return true;
  const bool limited = __builtin_cpu_supports("avx512bf16");
  const std::string why =
      fp16 ? "worker.precision=FP16: only GPUs compute in it"
           : fmt::format(
                 "worker.precision=BF16: {}",
                 limited ? "oneDNN may not use AVX512-BF16 (see the variable ONEDNN_MAX_CPU_ISA)"
                         : "this processor has no AVX512-BF16");
  if (!worker.soft_placement()) {
    throw Error(ExitCode::kUsage,
                "{}. Use FP32, or worker.soft_placement=true, which falls back to it", why);
  }
  LogWarning("{}: computing in FP32 (worker.soft_placement)", why);
  return false;
}

WorkerDevice MakeCpu(const config::Worker& worker) {
  const CpuOptions options{.winograd = worker.convolution() != config::Worker::DIRECT,
                           .bf16 = UsesBf16(worker)};
  const auto threads = static_cast<int>(worker.threads());
  return {MakeCpuBackend(threads, options), CpuArithmetic(threads, options)};
}

CudaOptions::Precision PrecisionOf(const config::Worker& worker) {
  switch (worker.precision()) {
    case config::Worker::TF32:
      return CudaOptions::Precision::kTf32;
    case config::Worker::BF16:
      return CudaOptions::Precision::kBf16;
    case config::Worker::FP16:
      return CudaOptions::Precision::kFp16;
    default:
      return CudaOptions::Precision::kFp32;
  }
}

CudaOptions::Convolution ConvolutionOf(const config::Worker& worker) {
  switch (worker.convolution()) {
    case config::Worker::GEMM:
      return CudaOptions::Convolution::kGemm;
    case config::Worker::CUDNN:
      return CudaOptions::Convolution::kCudnn;
    default:
      return CudaOptions::Convolution::kAuto;
  }
}

void LogForPlugin(LogLevel level, const std::string& line) {
  LogLine(level, "{}", fmt::make_format_args(line));
}

WorkerDevice MakeCuda(const config::Config& config, uint32_t rank) {
  const config::Worker& worker = config.worker();
  const config::Deadlines& deadlines = config.deadlines();
  CudaOptions options{.precision = PrecisionOf(worker),
                      .convolution = ConvolutionOf(worker),
                      .card = static_cast<int>(rank / worker.workers_per_gpu()),
                      .graphs = worker.cuda_graphs(),
                      .drain_s = std::max(deadlines.step_s(), deadlines.first_step_s()),
                      .log = LogForPlugin};
  options.memory_fraction = worker.has_gpu_memory_fraction() ? worker.gpu_memory_fraction()
                                                             : 1.0 / worker.workers_per_gpu();
  CudaWorker made = LoadCudaWorker(options, CudaLibraryFolders());
  return {std::move(made.backend), std::move(made.arithmetic)};
}

// Returns advice for a GPU that does not work.
std::string OtherDevices() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return fmt::format("try another GPU{} (--devices) or --devices cpu",
                     visible == nullptr ? "" : fmt::format(" than {}", visible));
}

// The tolerance relative to a tensor's largest value. It is far above the effect of a different
// summation order and far below that of a wrong product.
double ToleranceOf(config::Worker::Precision precision) {
  switch (precision) {
    case config::Worker::TF32:
    case config::Worker::FP16:
      return 1e-2;
    case config::Worker::BF16:
      return 3e-2;
    default:
      return 1e-3;
  }
}

}  // namespace

std::unique_ptr<GpuAdder> MakeGpuAdder(const config::Config& config) {
  // While it waits, the relay's workers seem silent to the server.
  return LoadGpuAdder({.drain_s = config.deadlines().silence_s() / 2, .log = LogForPlugin},
                      CudaLibraryFolders());
}

WorkerDevice MakeWorkerDevice(const config::Config& config, uint32_t rank) {
  const config::Worker& worker = config.worker();
  if (worker.backend() != config::Worker::CUDA) return MakeCpu(worker);
  try {
    WorkerDevice device = MakeCuda(config, rank);
    LogInfo("computing on {}", device.arithmetic);
    return device;
  } catch (const OutOfDeviceMemory&) {
    throw;
  } catch (const NoGpu& error) {
    if (!worker.soft_placement()) throw;
    LogWarning("falling back to the CPU (worker.soft_placement): {}", error.what());
    return MakeCpu(worker);
  } catch (const Error& error) {
    throw Error(error.code(), "{}; {}", error.what(), OtherDevices());
  }
}

void TestDevice(const config::Config& config, const Graph& graph, int64_t batch,
                const WorkerDevice& device) {
  const config::Worker& worker = config.worker();
  if (device.backend->shares_host_memory() || batch == 0) return;
  const auto begin = std::chrono::steady_clock::now();
  // Runs in a separate thread because the CPU backend changes how its thread treats denormal
  // numbers.
  const SelfTestResult result =
      std::async(std::launch::async, [&] {
        const std::unique_ptr<Backend> cpu =
            MakeCpuBackend(static_cast<int>(worker.threads()), {.winograd = false});
        return RunSelfTest(graph, batch, ToleranceOf(worker.precision()), *device.backend, *cpu);
      }).get();
  if (!result.failure.empty()) {
    throw Error(ExitCode::kRefused,
                "{}: the test before the first step failed: {}. The GPU, its driver or its "
                "libraries may be broken; {}",
                device.arithmetic, result.failure, OtherDevices());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  LogInfo("the GPU's results match the CPU's: {} operations tested in {:.1f} s", result.operations,
          took.count());
}

}  // namespace muster
