// The CUDA runtime's device queries, and the common part of all calls.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

namespace muster::software_gpu {
namespace {

cudaError_t& LastError() {
  static thread_local cudaError_t last = cudaSuccess;
  return last;
}

}  // namespace

cudaError_t RuntimeCall(const char* call, CallKind kind, const std::function<cudaError_t()>& body) {
  Device& device = Device::Get();
  int fault = cudaSuccess;
  cudaError_t error = cudaSuccess;
  if (!device.Begin(call, kind, &fault)) {
    error = static_cast<cudaError_t>(fault);
  } else if (device.options().devices == 0) {
    error = cudaErrorNoDevice;
  } else if (kind == CallKind::kMakes && device.failure() != cudaSuccess) {
    error = device.failure();
  } else {
    error = body();
    // Freeing succeeds even on a lost device.
    if (kind != CallKind::kMakes && device.failure() != cudaSuccess) error = device.failure();
  }
  if (error != cudaSuccess && error != cudaErrorNotReady) LastError() = error;
  return error;
}

cudaError_t Refuse(cudaError_t error, const std::string& what) {
  ReportViolation(what);
  return error;
}

}  // namespace muster::software_gpu

namespace {

bool IsCard(int card) {
  return card >= 0 && card < muster::software_gpu::Device::Get().options().devices;
}

}  // namespace

using muster::software_gpu::CallKind;
using muster::software_gpu::Device;
using muster::software_gpu::RuntimeCall;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(muster::software_gpu::LastError(), cudaSuccess);
  const cudaError_t failure = Device::Get().failure();
  return failure != cudaSuccess ? failure : error;
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t failure = Device::Get().failure();
  return failure != cudaSuccess ? failure : muster::software_gpu::LastError();
}

cudaError_t cudaGetDeviceCount(int* count) {
  return RuntimeCall("cudaGetDeviceCount", CallKind::kOfNoCard, [&] {
    *count = Device::Get().options().devices;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return RuntimeCall("cudaSetDevice", CallKind::kOfNoCard, [&] {
    if (!IsCard(device)) return cudaErrorInvalidDevice;
    Device::CardOfThread() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return RuntimeCall("cudaInitDevice", CallKind::kOfNoCard,
                     [&] { return IsCard(device) ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  return RuntimeCall("cudaDeviceCanAccessPeer", CallKind::kOfNoCard, [&] {
    *can = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDeviceFlags(unsigned) {
  return RuntimeCall("cudaSetDeviceFlags", CallKind::kOfNoCard, [] { return cudaSuccess; });
}

cudaError_t cudaGetDevice(int* device) {
  return RuntimeCall("cudaGetDevice", CallKind::kOfNoCard, [&] {
    *device = Device::CardOfThread();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return RuntimeCall("cudaGetDeviceProperties", CallKind::kOfNoCard, [&] {
    if (!IsCard(device)) return cudaErrorInvalidDevice;
    const muster::software_gpu::Options& options = Device::Get().options();
    *properties = {};
    std::strncpy(properties->name, "Software GPU", sizeof(properties->name) - 1);
    properties->totalGlobalMem = options.memory_bytes;
    properties->sharedMemPerBlock = muster::software_gpu::kSharedPerBlock;
    properties->sharedMemPerBlockOptin = muster::software_gpu::kSharedOptIn;
    properties->sharedMemPerMultiprocessor = muster::software_gpu::kSharedOptIn + 1024;
    properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
    properties->maxThreadsDim[2] = 64;
    properties->maxGridSize[0] = 0x7fffffff;
    properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->maxBlocksPerMultiProcessor = 32;
    properties->multiProcessorCount = options.multiprocessors;
    properties->major = options.compute_major;
    properties->minor = options.compute_minor;
    properties->asyncEngineCount = 2;
    properties->concurrentKernels = 1;
    properties->unifiedAddressing = 1;
    properties->canMapHostMemory = 1;
    properties->l2CacheSize = 1 << 20;
    properties->memoryBusWidth = 64;
    properties->hostRegisterSupported = 1;
    properties->hostRegisterReadOnlySupported = options.read_only_registration;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) return error;
  return RuntimeCall("cudaDeviceGetAttribute", CallKind::kOfNoCard, [&] {
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = properties.multiProcessorCount;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = properties.major;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = properties.minor;
        return cudaSuccess;
      case cudaDevAttrMaxThreadsPerBlock:
        *value = properties.maxThreadsPerBlock;
        return cudaSuccess;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = properties.maxThreadsPerMultiProcessor;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = static_cast<int>(properties.sharedMemPerBlock);
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(properties.sharedMemPerBlockOptin);
        return cudaSuccess;
      case cudaDevAttrWarpSize:
        *value = properties.warpSize;
        return cudaSuccess;
      case cudaDevAttrHostRegisterSupported:
      case cudaDevAttrUnifiedAddressing:
        *value = 1;
        return cudaSuccess;
      case cudaDevAttrHostRegisterReadOnlySupported:
        *value = properties.hostRegisterReadOnlySupported;
        return cudaSuccess;
      case cudaDevAttrL2CacheSize:
        *value = properties.l2CacheSize;
        return cudaSuccess;
      case cudaDevAttrAsyncEngineCount:
        *value = properties.asyncEngineCount;
        return cudaSuccess;
      case cudaDevAttrCanUseHostPointerForRegisteredMem:
      case cudaDevAttrIntegrated:
        *value = 0;
        return cudaSuccess;
      default:
        return muster::software_gpu::Refuse(
            cudaErrorNotSupported,
            fmt::format("cudaDeviceGetAttribute({}): not known here; add it to runtime_device.cc",
                        static_cast<int>(attribute)));
    }
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return RuntimeCall("cudaDeviceGetPCIBusId", CallKind::kOfNoCard, [&] {
    if (!IsCard(device)) return cudaErrorInvalidDevice;
    // As tests/cli/gpu/fake_nvml.cc expects: GPU-0003… is the fourth GPU of this machine.
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    unsigned first = 0;
    if (visible == nullptr || std::sscanf(visible, "GPU-%4x", &first) != 1) first = 0;
    fmt::format_to_n(id, length, "0000:{:02x}:00.0", first + device + 1).out[0] = '\0';
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return RuntimeCall("cudaDriverGetVersion", CallKind::kOfNoCard, [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return RuntimeCall("cudaRuntimeGetVersion", CallKind::kOfNoCard, [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return RuntimeCall("cudaMemGetInfo", CallKind::kAnywhere, [&] {
    *free = Device::Get().memory().free_bytes();
    *total = Device::Get().memory().limit();
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return RuntimeCall("cudaFuncGetAttributes", CallKind::kAnywhere, [&] {
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    if (const auto needs = Device::Get().kernels().Find(kernel)) {
      attributes->numRegs = needs->registers;
      attributes->sharedSizeBytes = needs->shared_bytes;
      if (needs->most_threads > 0) attributes->maxThreadsPerBlock = needs->most_threads;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return RuntimeCall("cudaFuncSetAttribute", CallKind::kAnywhere, [&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    const auto bytes = static_cast<size_t>(value);
    if (value < 0 || bytes > muster::software_gpu::kSharedOptIn) return cudaErrorInvalidValue;
    Device::Get().SetSharedLimit(kernel, bytes);
    return cudaSuccess;
  });
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define MUSTER_NAME(NAME) \
  case NAME:              \
    return #NAME;
    MUSTER_NAME(cudaSuccess)
    MUSTER_NAME(cudaErrorInvalidValue)
    MUSTER_NAME(cudaErrorMemoryAllocation)
    MUSTER_NAME(cudaErrorInvalidConfiguration)
    MUSTER_NAME(cudaErrorInvalidDevicePointer)
    MUSTER_NAME(cudaErrorInsufficientDriver)
    MUSTER_NAME(cudaErrorNoDevice)
    MUSTER_NAME(cudaErrorInvalidDevice)
    MUSTER_NAME(cudaErrorDevicesUnavailable)
    MUSTER_NAME(cudaErrorECCUncorrectable)
    MUSTER_NAME(cudaErrorInvalidResourceHandle)
    MUSTER_NAME(cudaErrorNotReady)
    MUSTER_NAME(cudaErrorIllegalAddress)
    MUSTER_NAME(cudaErrorLaunchFailure)
    MUSTER_NAME(cudaErrorLaunchTimeout)
    MUSTER_NAME(cudaErrorHostMemoryAlreadyRegistered)
    MUSTER_NAME(cudaErrorHostMemoryNotRegistered)
    MUSTER_NAME(cudaErrorNotSupported)
    MUSTER_NAME(cudaErrorNotPermitted)
    MUSTER_NAME(cudaErrorNoKernelImageForDevice)
    MUSTER_NAME(cudaErrorUnsupportedPtxVersion)
    MUSTER_NAME(cudaErrorSystemNotReady)
    MUSTER_NAME(cudaErrorUnknown)
#undef MUSTER_NAME
    default:
      return "cudaErrorOfASoftwareGpu";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorNotSupported:
      return "operation not supported";
    default:
      return cudaGetErrorName(error);
  }
}
}
