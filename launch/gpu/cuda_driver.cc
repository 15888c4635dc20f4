#include "launch/gpu/cuda_driver.h"

#include <fmt/core.h>

#include <array>

#include "common/base/error.h"
#include "common/base/utf8.h"

namespace muster {
namespace {

constexpr CudaApi::Result kSuccess = 0;
constexpr CudaApi::Result kNoDevice = 100;
constexpr CudaApi::Result kInvalidDevice = 101;  // what CUDA_VISIBLE_DEVICES names is not there
constexpr CudaApi::Result kNotFound = 500;

CudaApi LoadApi(const SharedLibrary& library) {
  CudaApi api{};
  library.Get(api.init, "cuInit");
  library.Get(api.device_count, "cuDeviceGetCount");
  library.Get(api.device, "cuDeviceGet");
  library.Get(api.uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid");  // the first knows of MIG
  library.Get(api.name, "cuDeviceGetName");
  library.Get(api.error_name, "cuGetErrorName");
  library.Get(api.retain_context, "cuDevicePrimaryCtxRetain");
  library.Get(api.set_context, "cuCtxSetCurrent");
  library.Get(api.release_context, "cuDevicePrimaryCtxRelease_v2");
  library.Get(api.load_module, "cuModuleLoadData");
  library.Get(api.get_function, "cuModuleGetFunction");
  library.Get(api.allocate, "cuMemAlloc_v2");
  library.Get(api.release, "cuMemFree_v2");
  library.Get(api.copy_in, "cuMemcpyHtoD_v2");
  library.Get(api.copy_out, "cuMemcpyDtoH_v2");
  library.Get(api.launch, "cuLaunchKernel");
  library.Get(api.synchronize, "cuCtxSynchronize");
  return api;
}

}  // namespace

CudaDriver::CudaDriver(const std::string& library) : library_(library), api_(LoadApi(library_)) {
  if (!library_.error().empty()) {
    throw Error(ExitCode::kFailure, "the CUDA driver cannot be loaded: {}", library_.error());
  }
  const auto have = [&](auto* function) {
    if (function == nullptr) {
      throw Error(ExitCode::kFailure, "{}: expected CUDA's driver library, a function is missing",
                  library);
    }
  };
  have(api_.init), have(api_.device_count), have(api_.device), have(api_.uuid), have(api_.name);
  have(api_.retain_context), have(api_.set_context), have(api_.release_context);
  have(api_.load_module), have(api_.get_function), have(api_.allocate), have(api_.release);
  have(api_.copy_in), have(api_.copy_out), have(api_.launch), have(api_.synchronize);
  CudaApi::Result result = api_.init(0);
  if (result == kNoDevice || result == kInvalidDevice) return;
  Check(result, "cuInit");
  result = api_.device_count(&count_);
  if (result == kNoDevice) count_ = 0;
  if (result != kNoDevice) Check(result, "cuDeviceGetCount");
}

void CudaDriver::Check(CudaApi::Result result, const char* what) const {
  if (result == kSuccess) return;
  const char* name = nullptr;
  if (api_.error_name == nullptr || api_.error_name(result, &name) != kSuccess) name = nullptr;
  throw Error(ExitCode::kFailure, "{} failed: {} ({})", what,
              name != nullptr       ? ValidUtf8(name)
              : result == kNotFound ? "not found"
                                    : "CUDA's error",
              result);
}

int CudaDriver::Device(int ordinal) const {
  int device = 0;
  Check(api_.device(&device, ordinal), "cuDeviceGet");
  return device;
}

std::string CudaDriver::UuidOf(int ordinal) const {
  CudaApi::Uuid uuid{};
  Check(api_.uuid(&uuid, Device(ordinal)), "cuDeviceGetUuid");
  std::string text;
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

std::string CudaDriver::NameOf(int ordinal) const {
  std::array<char, 256> name{};
  Check(api_.name(name.data(), static_cast<int>(name.size()), Device(ordinal)), "cuDeviceGetName");
  name.back() = '\0';
  return ValidUtf8(name.data());
}

}  // namespace muster
