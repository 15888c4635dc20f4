#include "worker/backend/cuda/card.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "common/base/error.h"
#include "worker/backend/cuda/code.h"
#include "worker/backend/cuda/element.h"

namespace muster::cuda {
namespace {

double Megabytes(size_t bytes) { return static_cast<double>(bytes) * 1e-6; }

// Formats 13000 as "13.0".
std::string VersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int Attribute(cudaDeviceAttr attribute, int card) {
  int value = 0;
  Check(cudaDeviceGetAttribute(&value, attribute, card), "be queried");
  return value;
}

// Environment variables that change how NVIDIA's libraries round.
std::string Overrides() {
  std::string text;
  for (const char* const name :
       {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATION_STRATEGY"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) text += fmt::format(", {}={}", name, value);
  }
  return text;
}

// Whether the launcher has assigned a GPU to this worker by its UUID. In that case other workers
// may have working GPUs.
bool HasCardOfItsOwn() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string_view name = visible == nullptr ? "" : visible;
  return name.starts_with("GPU-") || name.starts_with("MIG-");
}

// `driver`: the newest CUDA that it supports, or 0 without one.
std::string WhyNoDriver(int driver) {
  const std::string needed = VersionText(CUDART_VERSION);
  if (driver == 0) {
    return fmt::format(
        "this machine has no NVIDIA driver (libcuda.so.1) for CUDA {} or later; "
        "install one",
        needed);
  }
  return fmt::format(
      "this machine's NVIDIA driver supports CUDA {}, but this build needs {} or "
      "later; update the driver{}",
      VersionText(driver), needed,
      driver >= 12000 && driver / 1000 < CUDART_VERSION / 1000
          ? ", use Muster's package libmuster_cuda-…-cuda12"
          : "");
}

}  // namespace

Card::Card(const CudaOptions& options) : options_(options), graphs_(options.graphs) {
  FindCard();
  watchdog_ = std::make_unique<Watchdog>(options_, name_);
  for (StreamHandle& stream : streams_) stream = MakeStream();
  MakeLibraries();
}

void Card::FindCard() {
  int count = 0;  // unchanged if there is no driver
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();
    int driver = 0;  // stays so without a driver
    (void)cudaDriverGetVersion(&driver);
    throw NoGpu(ExitCode::kFailure, "{}, or set worker.backend=CPU", WhyNoDriver(driver));
  }
  const bool none = found == cudaErrorNoDevice || (found == cudaSuccess && count == 0);
  if (none && HasCardOfItsOwn()) Check(cudaErrorNoDevice, "be found");
  if (none) {
    (void)cudaGetLastError();
    throw NoGpu(ExitCode::kFailure,
                "CUDA finds no usable GPU (CUDA_VISIBLE_DEVICES may hide it; `muster gpus` lists "
                "the GPUs); set worker.backend=CPU to compute without a GPU");
  }
  Check(found, "be found");
  card_ = options_.card % count;
  Enter();
  cudaDeviceProp properties{};
  Check(cudaGetDeviceProperties(&properties, card_), "be queried");
  name_ = properties.name;
  architecture_ = fmt::format("sm_{}{}", properties.major, properties.minor);
  has_tf32_ = properties.major >= 8;
  if (!HasCode()) {
    throw Error(ExitCode::kFailure,
                "this build has no code for {} ({}), only for {}; build with "
                "MUSTER_CUDA_ARCHITECTURES (docs/GPUS.md), or set worker.backend=CPU",
                name_, architecture_, Architectures());
  }
  RequireHalves(properties.major);
  multiprocessors_ = properties.multiProcessorCount;
  most_blocks_ = MostBlocks(properties);
  total_bytes_ = properties.totalGlobalMem;
  registers_read_only_ = Attribute(cudaDevAttrHostRegisterReadOnlySupported, card_) != 0;
}

void Card::MakeLibraries() {
  workspace_ = Allocate(kWorkspaceBytes);
  cublasHandle_t cublas{};
  Check(cublasCreate(&cublas), "start cuBLAS");
  cublas_ = CublasHandle(cublas);
  Check(cublasSetStream(cublas, stream(Queue::kCompute)), "set the stream of cuBLAS");
  Check(cublasSetWorkspace(cublas, workspace_.get(), kWorkspaceBytes),
        "set the workspace of cuBLAS");
  // FP32 must not silently become TF32: each product names its compute type. Partial sums of
  // products in 16 bits stay in float; by default cuBLAS would round them to the result's type.
  constexpr auto kMath = static_cast<cublasMath_t>(
      CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  Check(cublasSetMathMode(cublas, kMath), "set up cuBLAS");
  cublasLtHandle_t cublas_lt{};
  Check(cublasLtCreate(&cublas_lt), "start cuBLASLt");
  cublas_lt_ = CublasLtHandle(cublas_lt);
  if (options_.convolution == CudaOptions::Convolution::kGemm) return;
  const bool required = options_.convolution == CudaOptions::Convolution::kCudnn;
  cudnn_ = FindCudnn(stream(Queue::kCompute), required);
  if (cudnn_ == nullptr && required) {
    throw Error(ExitCode::kFailure,
                "worker.convolution=CUDNN, but {}, or set worker.convolution=GEMM", WhyNoCudnn());
  }
}

// Older GPUs may do such products by other means, but many times slower, and no convolutions.
void Card::RequireHalves(int major) const {
  const bool bf16 = activation_type() == ElementType::kBFloat16;
  if (activation_type() == ElementType::kFloat32 || major >= (bf16 ? 8 : 7)) return;
  throw Error(ExitCode::kFailure,
              "worker.precision={}, but {} ({}) has no {} products: expected a GPU with sm_{} or "
              "later; set worker.precision={}",
              bf16 ? "BF16" : "FP16", name_, architecture_, bf16 ? "bfloat16" : "half-precision",
              bf16 ? 80 : 70, bf16 ? "FP16 or FP32" : "FP32");
}

void Card::EndGraphs(const char* why) {
  graphs_ = false;
  options_.Log(
      LogLevel::kWarning,
      fmt::format("GPU {}: cannot use CUDA graphs: {}; starting each kernel by itself, which "
                  "takes longer (worker.cuda_graphs=false hides this warning)",
                  name_, why));
}

void Card::Enter() const { Check(cudaSetDevice(card_), "be used"); }

cublasComputeType_t Card::compute_type() const {
  return options_.precision == CudaOptions::Precision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                             : CUBLAS_COMPUTE_32F;
}

std::string Card::Arithmetic() const {
  int runtime = 0, cublas = 0;
  Check(cudaRuntimeGetVersion(&runtime), "report the CUDA version");
  Check(cublasGetVersion(cublas_.get(), &cublas), "report the cuBLAS version");
  constexpr const char* kPrecisions[] = {"FP32", "TF32", "BF16", "FP16"};
  const bool tf32 = options_.precision == CudaOptions::Precision::kTf32;
  return fmt::format(
      "{} ({}, {} SMs), CUDA {}, cuBLAS {}.{}.{}, {}, convolutions {}{}", name_, architecture_,
      multiprocessors_, VersionText(runtime), cublas / 10000, cublas / 100 % 100, cublas % 100,
      tf32 && !has_tf32_ ? "FP32 (this GPU has no TF32)"
                         : kPrecisions[static_cast<int>(options_.precision)],
      cudnn_ == nullptr ? std::string("GEMM") : "cuDNN " + VersionOf(*cudnn_), Overrides());
}

std::string Card::PciBusId() const {
  std::array<char, 32> id{};
  Check(cudaDeviceGetPCIBusId(id.data(), int{id.size()}, card_), "report its PCI address");
  return id.data();
}

DeviceMemory Card::Allocate(size_t bytes) {
  if (options_.memory_fraction < 1 && static_cast<double>(allocated_ + bytes) > limit()) {
    throw OutOfDeviceMemory(
        ExitCode::kFailure,
        "out of memory: this worker requested {1:.1f} MB more on its GPU ({0}), but its limit is "
        "{2:.1f} MB (worker.gpu_memory_fraction, worker.workers_per_gpu) and it holds {3:.1f} MB; "
        "use a smaller batch, more slices, or --devices cpu",
        name_, Megabytes(bytes), limit() * 1e-6, Megabytes(allocated_));
  }
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, bytes);
  if (result == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    ThrowOutOfMemory(bytes);
  }
  Check(result, "allocate memory");
  allocated_ += bytes;
  most_allocated_ = std::max(most_allocated_, allocated_);
  return DeviceMemory(memory);
}

DeviceMemoryUse Card::memory_use() const {
  size_t available = 0, total = 0;
  if (cudaMemGetInfo(&available, &total) != cudaSuccess) available = 0;
  if (options_.memory_fraction < 1) {
    const double left = std::max(0.0, limit() - static_cast<double>(allocated_));
    available = std::min(available, static_cast<size_t>(left));
  }
  return {.held = allocated_, .most = most_allocated_, .available = available};
}

void Card::ThrowOutOfMemory(size_t bytes) const {
  size_t available = 0, total = 0;
  if (cudaMemGetInfo(&available, &total) != cudaSuccess) available = 0;
  throw OutOfDeviceMemory(
      ExitCode::kFailure,
      "out of memory: this worker requested {1:.1f} MB more on its GPU ({0}); {2:.1f} of {3:.1f} "
      "MB are free, this worker holds {4:.1f} MB and others the rest (see `muster gpus`); use a "
      "smaller batch, more slices, or --devices cpu",
      name_, Megabytes(bytes), Megabytes(available), Megabytes(total_bytes_),
      Megabytes(allocated_));
}

}  // namespace muster::cuda
