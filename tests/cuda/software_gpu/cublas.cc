// cuBLAS on the software GPU: handles, and products of matrices.
#include <cublas_v2.h>
#include <fmt/format.h>

#include <memory>
#include <string>

#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/gemm.h"
#include "tests/cuda/software_gpu/library.h"
#include "tests/cuda/software_gpu/violation.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

struct cublasContext {
  cudaStream_t stream = nullptr;
  Workspace workspace;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace {

cublasStatus_t BlasCall(const char* call, CallKind kind,
                        const std::function<cublasStatus_t()>& body) {
  return LibraryCall<cublasStatus_t>(call, kind, CUBLAS_STATUS_EXECUTION_FAILED, body);
}

cublasStatus_t RefuseBlas(cublasStatus_t status, const std::string& what) {
  ReportViolation(what);
  return status;
}

cublasStatus_t WithHandle(const char* call, cublasHandle_t handle,
                          const std::function<cublasStatus_t()>& body) {
  return BlasCall(call, CallKind::kAnywhere, [&] {
    if (Device::Get().IsTracked(handle)) return body();
    return RefuseBlas(CUBLAS_STATUS_NOT_INITIALIZED, std::string(call) + ": no such handle");
  });
}

// A batch of products of one shape, `stride` elements apart.
struct Strided {
  GemmArgs args;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  int count = 1;
};

std::string WrongMatrix(const char* name, const Matrix& matrix, int64_t rows, int64_t columns) {
  if (SizeOf(matrix.type) == 0)
    return fmt::format("{}: type {}", name, static_cast<int>(matrix.type));
  if (matrix.leading < std::max<int64_t>(1, matrix.transposed ? columns : rows)) {
    return fmt::format("{}: a leading dimension of {} for {} x {}", name, matrix.leading, rows,
                       columns);
  }
  if (!Device::Get().memory().Contains(matrix.data)) {
    return fmt::format("{} is not in the device's memory", name);
  }
  if (reinterpret_cast<uintptr_t>(matrix.data) % SizeOf(matrix.type) != 0) {
    return fmt::format("{} is misaligned", name);
  }
  return "";
}

constexpr int kSumsInFloat = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;

cublasStatus_t EnqueueGemm(cublasHandle_t handle, const char* call, const Strided& strided) {
  const GemmArgs& args = strided.args;
  std::string wrong = WrongMatrix("A", args.a, args.m, args.k) +
                      WrongMatrix("B", args.b, args.k, args.n) +
                      WrongMatrix("C", args.c, args.m, args.n);
  if (args.m < 0 || args.n < 0 || args.k < 0 || strided.count < 0) wrong += "a negative size";
  if (args.a.type != args.b.type) wrong += "A and B are of different types";
  if (args.a.type == CUDA_R_32F && args.c.type != CUDA_R_32F)
    wrong += "C has less precision than A";
  if (args.c.type != CUDA_R_32F && (handle->math & kSumsInFloat) == 0) {
    wrong += "partial sums may be rounded to the type of C";
  }
  // cuBLAS would then use its own, whose size, and so the bits, depend on the GPU.
  if (handle->workspace.bytes == 0) wrong += "no workspace since the stream was set";
  if (!wrong.empty())
    return RefuseBlas(CUBLAS_STATUS_INVALID_VALUE, fmt::format("{}: {}", call, wrong));
  if (args.a.type == CUDA_R_16BF && !HasNarrowTypes()) return CUBLAS_STATUS_ARCH_MISMATCH;
  Stream* const stream = Device::Get().Find(handle->stream, call);
  if (stream == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  stream->Push(Device::Get().known(), call, nullptr,
               [strided, workspace = handle->workspace](const Work& work) {
                 SpoilWorkspace(work, workspace);
                 for (int i = 0; i < strided.count; ++i) {
                   GemmArgs one = strided.args;
                   one.a.data = Advance(one.a.data, one.a.type, i * strided.stride_a);
                   one.b.data = Advance(one.b.data, one.b.type, i * strided.stride_b);
                   one.c.data = Advance(one.c.data, one.c.type, i * strided.stride_c);
                   Gemm(work, one);
                 }
               });
  return CUBLAS_STATUS_SUCCESS;
}

float HostScalar(const void* value) { return *static_cast<const float*>(value); }

// Returns what is unsupported here, or "".
std::string WrongCompute(cublasComputeType_t compute, const void* alpha, const void* beta) {
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
      compute != CUBLAS_COMPUTE_32F_FAST_TF32) {
    return fmt::format("compute type {}", static_cast<int>(compute));
  }
  const DeviceMemory& memory = Device::Get().memory();
  if (memory.Contains(alpha) || memory.Contains(beta)) {
    return "alpha or beta is in device memory, but the pointer mode is host";
  }
  return "";
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return BlasCall("cublasCreate", CallKind::kNotInAStep, [&] {
    *handle = new cublasContext;
    Device::Get().Track(*handle, "a cuBLAS handle");
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (!Device::Get().Untrack(handle)) {
    return RefuseBlas(CUBLAS_STATUS_NOT_INITIALIZED, "cublasDestroy: no such handle");
  }
  delete handle;
  return BlasCall("cublasDestroy", CallKind::kNotInAStep, [] { return CUBLAS_STATUS_SUCCESS; });
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version) {
  return WithHandle("cublasGetVersion", handle, [&] {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION   ? CUBLAS_VER_MAJOR
           : type == MINOR_VERSION ? CUBLAS_VER_MINOR
                                   : CUBLAS_VER_PATCH;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return WithHandle("cublasSetStream", handle, [&] {
    if (Device::Get().Find(stream, "cublasSetStream") == nullptr)
      return CUBLAS_STATUS_INVALID_VALUE;
    handle->stream = stream;
    handle->workspace = {};  // as cuBLAS does
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* data, size_t bytes) {
  return WithHandle("cublasSetWorkspace", handle, [&] {
    const Workspace workspace = {data, bytes};
    const std::string wrong = WrongWorkspace(workspace);
    if (!wrong.empty()) {
      return RefuseBlas(CUBLAS_STATUS_INVALID_VALUE, "cublasSetWorkspace: " + wrong);
    }
    handle->workspace = workspace;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return WithHandle("cublasSetMathMode", handle, [&] {
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  return WithHandle("cublasSetPointerMode", handle, [&] {
    return mode == CUBLAS_POINTER_MODE_HOST
               ? CUBLAS_STATUS_SUCCESS
               : RefuseBlas(CUBLAS_STATUS_NOT_SUPPORTED,
                            "cublasSetPointerMode: only host mode is supported here");
  });
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  return WithHandle("cublasSetAtomicsMode", handle, [&] {
    return mode == CUBLAS_ATOMICS_NOT_ALLOWED
               ? CUBLAS_STATUS_SUCCESS
               : RefuseBlas(CUBLAS_STATUS_NOT_SUPPORTED,
                            "cublasSetAtomicsMode: atomics make the bits nondeterministic");
  });
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transpose_a,
                                          cublasOperation_t transpose_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int a_leading, long long a_stride, const void* b,
                                          cudaDataType b_type, int b_leading, long long b_stride,
                                          const void* beta, void* c, cudaDataType c_type,
                                          int c_leading, long long c_stride, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  return WithHandle("cublasGemmStridedBatchedEx", handle, [&] {
    const std::string wrong = WrongCompute(compute, alpha, beta);
    if (!wrong.empty()) return RefuseBlas(CUBLAS_STATUS_NOT_SUPPORTED, "cuBLAS: " + wrong);
    const bool tf32 =
        compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
        (compute == CUBLAS_COMPUTE_32F && (handle->math & 0xf) == CUBLAS_TF32_TENSOR_OP_MATH);
    const GemmArgs args = {
        .m = m,
        .n = n,
        .k = k,
        .alpha = HostScalar(alpha),
        .beta = HostScalar(beta),
        .a = {const_cast<void*>(a), a_type, a_leading, transpose_a != CUBLAS_OP_N},
        .b = {const_cast<void*>(b), b_type, b_leading, transpose_b != CUBLAS_OP_N},
        .c = {c, c_type, c_leading},
        .tf32 = tf32 && HasNarrowTypes()};
    return EnqueueGemm(handle, "a product of cuBLAS",
                       {.args = args,
                        .stride_a = a_stride,
                        .stride_b = b_stride,
                        .stride_c = c_stride,
                        .count = count});
  });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transpose_a,
                            cublasOperation_t transpose_b, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int a_leading, const void* b,
                            cudaDataType b_type, int b_leading, const void* beta, void* c,
                            cudaDataType c_type, int c_leading, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  int fault = 0;
  if (!Device::Get().Begin("cublasGemmEx", CallKind::kAnywhere, &fault)) {
    return static_cast<cublasStatus_t>(fault);
  }
  return cublasGemmStridedBatchedEx(handle, transpose_a, transpose_b, m, n, k, alpha, a, a_type,
                                    a_leading, 0, b, b_type, b_leading, 0, beta, c, c_type,
                                    c_leading, 0, 1, compute, algorithm);
}

const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "a status of cuBLAS";
  }
}
}
