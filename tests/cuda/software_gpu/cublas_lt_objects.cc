// cublasLt on the software GPU: handles and descriptions.
#include "tests/cuda/software_gpu/cublas_lt_objects.h"

#include <fmt/format.h>

#include <cstring>

#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

namespace muster::software_gpu {

cublasStatus_t RefuseLt(cublasStatus_t status, const std::string& what) {
  ReportViolation("cublasLt: " + what);
  return status;
}

cublasStatus_t LtCall(const char* call, const std::function<cublasStatus_t()>& body) {
  return LibraryCall<cublasStatus_t>(call, CallKind::kAnywhere, CUBLAS_STATUS_EXECUTION_FAILED,
                                     body);
}

}  // namespace muster::software_gpu

namespace {

template <typename Object, typename Handle>
cublasStatus_t Make(Handle* handle, const Object& object, const char* what) {
  auto* const made = new Object(object);
  Device::Get().Track(made, what);
  *handle = reinterpret_cast<Handle>(made);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Object>
cublasStatus_t Destroy(const void* handle, const char* what) {
  if (!Device::Get().Untrack(handle)) {
    return RefuseLt(CUBLAS_STATUS_INVALID_VALUE,
                    fmt::format("the object to destroy is not {}", what));
  }
  delete static_cast<const Object*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t SetTo(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof(T)) {
    return RefuseLt(CUBLAS_STATUS_INVALID_VALUE,
                    fmt::format("an attribute of {} bytes (expected {})", bytes, sizeof(T)));
  }
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return LtCall("cublasLtCreate",
                [&] { return Make(handle, cublasLtContext(), "a cublasLt handle"); });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return Destroy<cublasLtContext>(handle, "a cublasLt handle");
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return LtCall("cublasLtMatmulDescCreate", [&] {
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    return Make(product, LtProduct{.compute = compute}, "a cublasLtMatmulDesc_t");
  });
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return Destroy<LtProduct>(product, "a cublasLtMatmulDesc_t");
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  return LtCall("cublasLtMatmulDescSetAttribute", [&] {
    LtProduct& to = At(product);
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return SetTo(to.transpose_a, value, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return SetTo(to.transpose_b, value, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return SetTo(to.epilogue, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return SetTo(to.bias, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return SetTo(to.bias_type, value, bytes);
      default:
        return RefuseLt(CUBLAS_STATUS_NOT_SUPPORTED,
                        fmt::format("attribute {} of a product", static_cast<int>(attribute)));
    }
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  return LtCall("cublasLtMatrixLayoutCreate", [&] {
    return Make(layout, LtLayout{static_cast<uint32_t>(type), rows, columns, leading},
                "a cublasLtMatrixLayout_t");
  });
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Destroy<LtLayout>(layout, "a cublasLtMatrixLayout_t");
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  return LtCall("cublasLtMatrixLayoutSetAttribute", [&] {
    switch (attribute) {
      case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return SetTo(At(layout).type, value, bytes);
      default:
        return RefuseLt(CUBLAS_STATUS_NOT_SUPPORTED,
                        fmt::format("attribute {} of a layout", static_cast<int>(attribute)));
    }
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return LtCall("cublasLtMatmulPreferenceCreate",
                [&] { return Make(preference, LtPreference(), "a cublasLtMatmulPreference_t"); });
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy<LtPreference>(preference, "a cublasLtMatmulPreference_t");
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  return LtCall("cublasLtMatmulPreferenceSetAttribute", [&] {
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return SetTo(At(preference).most_workspace, value, bytes);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return SetTo(At(preference).reductions, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return SetTo(At(preference).alignments[0], value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return SetTo(At(preference).alignments[1], value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return SetTo(At(preference).alignments[2], value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return SetTo(At(preference).alignments[3], value, bytes);
      default:
        return RefuseLt(CUBLAS_STATUS_NOT_SUPPORTED,
                        fmt::format("attribute {} of a preference", static_cast<int>(attribute)));
    }
  });
}
}
