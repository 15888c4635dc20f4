// cuBLAS on the software GPU: handles, and products of matrices.
#include <cublas_v2.h>
#include <fmt/format.h>

#include <functional>
#include <string>

#include "tests/cuda/software_gpu/gemm.h"
#include "tests/cuda/software_gpu/library.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

struct cublasContext {
  cudaStream_t stream = nullptr;
  Workspace workspace;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace {

cublasStatus_t WithHandle(const char* call, cublasHandle_t handle,
                          const std::function<cublasStatus_t()>& body) {
  return LibraryCall(call, CallKind::kAnywhere, CUBLAS_STATUS_EXECUTION_FAILED, [&] {
    if (Device::Get().IsTracked(handle)) return body();
    return Refuse(CUBLAS_STATUS_NOT_INITIALIZED, std::string(call) + ": no such handle");
  });
}

constexpr int kSumsInFloat = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;

cublasStatus_t Multiply(cublasHandle_t handle, const GemmArgs& args, cublasComputeType_t compute) {
  std::string wrong = WrongProduct(args);
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32) {
    wrong += fmt::format("compute type {}", static_cast<int>(compute));
  }
  if (args.c.type != CUDA_R_32F && (handle->math & kSumsInFloat) == 0) {
    wrong += "partial sums may be rounded to the type of C";
  }
  // cuBLAS would then use its own, whose size, and so the bits, depend on the GPU.
  if (handle->workspace.bytes == 0) wrong += "no workspace since the stream was set";
  if (!wrong.empty()) return Refuse(CUBLAS_STATUS_INVALID_VALUE, "a product of cuBLAS: " + wrong);
  if (args.a.type == CUDA_R_16BF && !HasNarrowTypes()) return CUBLAS_STATUS_ARCH_MISMATCH;
  return EnqueueGemm(handle->stream, "a product of cuBLAS", args, handle->workspace)
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_NOT_INITIALIZED;
}

}  // namespace

extern "C" {

const char* cublasGetStatusString(cublasStatus_t) { return "a status of cuBLAS"; }

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return Create("cublasCreate", CUBLAS_STATUS_EXECUTION_FAILED, handle, cublasContext(),
                CallKind::kNotInAStep);
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  return Destroy<cublasContext>("cublasDestroy", CUBLAS_STATUS_NOT_INITIALIZED, handle);
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version) {
  return WithHandle("cublasGetVersion", handle, [&] {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
  });
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
    if (!wrong.empty()) return Refuse(CUBLAS_STATUS_INVALID_VALUE, "cublasSetWorkspace: " + wrong);
    handle->workspace = workspace;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return WithHandle("cublasSetMathMode", handle, [&] {
    if ((mode & ~kSumsInFloat) != CUBLAS_DEFAULT_MATH) {
      return Refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                    "cublasSetMathMode: a mode in which products round more than they say");
    }
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
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
    const GemmArgs args = {
        .m = m,
        .n = n,
        .k = k,
        .alpha = *static_cast<const float*>(alpha),
        .beta = *static_cast<const float*>(beta),
        .a = {const_cast<void*>(a), a_type, a_leading, transpose_a != CUBLAS_OP_N, a_stride},
        .b = {const_cast<void*>(b), b_type, b_leading, transpose_b != CUBLAS_OP_N, b_stride},
        .c = {c, c_type, c_leading, false, c_stride},
        .count = count,
        .tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32 && HasNarrowTypes()};
    return Multiply(handle, args, compute);
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
}
