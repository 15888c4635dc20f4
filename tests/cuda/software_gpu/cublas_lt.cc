// cublasLt on the software GPU: products with an epilogue, and a heuristic that offers a single
// algorithm, which needs a workspace.
#include <cublasLt.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>

#include "tests/cuda/software_gpu/gemm.h"
#include "tests/cuda/software_gpu/library.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

struct cublasLtContext {};

namespace {

// The structs behind the handles.
struct LtProduct {
  cublasComputeType_t compute;
  cublasOperation_t transpose_a = CUBLAS_OP_N;
  cublasOperation_t transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct LtLayout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t leading;
};
// The required alignments of A, B, C, D and the bias. The last cannot be chosen.
using Alignments = std::array<uint32_t, 5>;
struct LtPreference {
  uint64_t most_workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  Alignments alignments = {256, 256, 256, 256, 16};
};
LtProduct& At(cublasLtMatmulDesc_t product) { return *reinterpret_cast<LtProduct*>(product); }
LtLayout& At(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<LtLayout*>(layout); }
LtPreference& At(cublasLtMatmulPreference_t of) { return *reinterpret_cast<LtPreference*>(of); }

// What is behind cublasLtMatmulAlgo_t.
struct LtAlgorithm {
  size_t product;  // the fingerprint
  Alignments alignments;
};
static_assert(sizeof(LtAlgorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr size_t kWorkspace = 64 << 10;  // that it needs
constexpr uint32_t kInTheTypeOfD =
    CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
constexpr cublasStatus_t kLtFailed = CUBLAS_STATUS_EXECUTION_FAILED;

cublasStatus_t RefuseLt(const std::string& what) {
  return Refuse(CUBLAS_STATUS_INVALID_VALUE, "cublasLt: " + what);
}

template <typename T>
cublasStatus_t SetTo(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof(T)) {
    return RefuseLt(fmt::format("an attribute of {} bytes (expected {})", bytes, sizeof(T)));
  }
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// Identifies the product that an algorithm was made for.
size_t Fingerprint(const LtProduct& product, const LtLayout& a, const LtLayout& b,
                   const LtLayout& d) {
  std::string text = fmt::format(
      "{} {} {} {}", static_cast<int>(product.compute), static_cast<int>(product.transpose_a),
      static_cast<int>(product.transpose_b), static_cast<int>(product.epilogue));
  for (const LtLayout* of : {&a, &b, &d}) {
    text +=
        fmt::format(" {} {} {} {}", static_cast<int>(of->type), of->rows, of->columns, of->leading);
  }
  return std::hash<std::string>()(text);
}

std::string WrongShapes(const LtProduct& product, const LtLayout& a, const LtLayout& b,
                        const LtLayout& d) {
  const bool ta = product.transpose_a != CUBLAS_OP_N;
  const bool tb = product.transpose_b != CUBLAS_OP_N;
  const uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  const uint64_t k_of_b = tb ? b.columns : b.rows, n = tb ? b.rows : b.columns;
  if (k == k_of_b && d.rows == m && d.columns == n) return "";
  return fmt::format("A is {} x {}, B is {} x {}, D is {} x {}", m, k, k_of_b, n, d.rows,
                     d.columns);
}

std::string WrongAlignment(const LtAlgorithm& algorithm,
                           const std::array<const void*, 5>& addresses) {
  constexpr const char* kNames[] = {"A", "B", "C", "D", "the bias"};
  for (size_t i = 0; i < addresses.size(); ++i) {
    const uint32_t alignment = algorithm.alignments[i];
    if (reinterpret_cast<uintptr_t>(addresses[i]) % alignment == 0) continue;
    return fmt::format("{} is not aligned to {} bytes, which the heuristic assumed", kNames[i],
                       alignment);
  }
  return "";
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return Create("cublasLtCreate", kLtFailed, handle, cublasLtContext());
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return Destroy<cublasLtContext>("cublasLtDestroy", kLtFailed, handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return RefuseLt("factors that are not floats");
  return Create("cublasLtMatmulDescCreate", kLtFailed, product, LtProduct{.compute = compute});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return Destroy<LtProduct>("cublasLtMatmulDescDestroy", kLtFailed, product);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  return LibraryCall("cublasLtMatmulDescSetAttribute", CallKind::kAnywhere, kLtFailed, [&] {
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
      default:
        return RefuseLt(fmt::format("attribute {} of a product", static_cast<int>(attribute)));
    }
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  return Create("cublasLtMatrixLayoutCreate", kLtFailed, layout,
                LtLayout{type, rows, columns, leading});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Destroy<LtLayout>("cublasLtMatrixLayoutDestroy", kLtFailed, layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Create("cublasLtMatmulPreferenceCreate", kLtFailed, preference, LtPreference());
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy<LtPreference>("cublasLtMatmulPreferenceDestroy", kLtFailed, preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  return LibraryCall("cublasLtMatmulPreferenceSetAttribute", CallKind::kAnywhere, kLtFailed, [&] {
    LtPreference& to = At(preference);
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return SetTo(to.most_workspace, value, bytes);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return SetTo(to.reductions, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return SetTo(to.alignments.at(attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
                     value, bytes);
      default:
        return RefuseLt(fmt::format("attribute {} of a preference", static_cast<int>(attribute)));
    }
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  return LibraryCall("cublasLtMatmulAlgoGetHeuristic", CallKind::kAnywhere, kLtFailed, [&] {
    *found = 0;
    const std::string wrong = WrongShapes(At(product), At(a), At(b), At(d));
    if (!wrong.empty()) return RefuseLt(wrong);
    if (At(a).type == CUDA_R_16BF && !HasNarrowTypes()) return CUBLAS_STATUS_NOT_SUPPORTED;
    const LtPreference& prefer = At(preference);
    if (At(d).type != CUDA_R_32F && (prefer.reductions & kInTheTypeOfD) != 0) {
      return RefuseLt("partial sums may be rounded to the type of D");
    }
    if (prefer.most_workspace < kWorkspace) return CUBLAS_STATUS_NOT_SUPPORTED;
    const LtAlgorithm algorithm = {Fingerprint(At(product), At(a), At(b), At(d)),
                                   prefer.alignments};
    results[0].workspaceSize = kWorkspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    std::memcpy(&results[0].algo, &algorithm, sizeof(algorithm));
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* chosen,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  return LibraryCall("cublasLtMatmul", CallKind::kAnywhere, kLtFailed, [&] {
    const LtProduct& with = At(product);
    const LtLayout &of_a = At(a_layout), &of_b = At(b_layout), &of_d = At(d_layout);
    const bool ta = with.transpose_a != CUBLAS_OP_N;
    const bool has_bias = (with.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    const GemmArgs args = {
        .m = static_cast<int64_t>(of_d.rows),
        .n = static_cast<int64_t>(of_d.columns),
        .k = static_cast<int64_t>(ta ? of_a.rows : of_a.columns),
        .alpha = *static_cast<const float*>(alpha),
        .beta = *static_cast<const float*>(beta),
        .a = {const_cast<void*>(a), of_a.type, of_a.leading, ta},
        .b = {const_cast<void*>(b), of_b.type, of_b.leading, with.transpose_b != CUBLAS_OP_N},
        .c = {d, of_d.type, of_d.leading},
        .tf32 = with.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && HasNarrowTypes(),
        .bias = has_bias ? with.bias : nullptr,
        .relu = (with.epilogue & CUBLASLT_EPILOGUE_RELU) != 0};
    const Workspace space = {workspace, workspace_bytes};
    LtAlgorithm algorithm;
    std::memcpy(&algorithm, chosen, sizeof(algorithm));
    std::string wrong = WrongProduct(args) + WrongWorkspace(space);
    wrong += algorithm.product == Fingerprint(with, of_a, of_b, of_d)
                 ? WrongAlignment(algorithm, {a, b, c, d, args.bias})
                 : "an algorithm for another product";
    if (c != d || c_layout != d_layout) wrong += "C is not D";
    if ((with.epilogue & ~CUBLASLT_EPILOGUE_RELU_BIAS) > CUBLASLT_EPILOGUE_DEFAULT ||
        (has_bias && with.bias == nullptr)) {
      wrong += "an unknown epilogue, or no bias";
    }
    if (!Device::Get().IsTracked(handle)) wrong += "no such handle";
    if (workspace_bytes < kWorkspace) {
      wrong += fmt::format("a workspace of {} bytes, but the algorithm needs {}", workspace_bytes,
                           kWorkspace);
    }
    if (!wrong.empty()) return RefuseLt(wrong);
    return EnqueueGemm(stream, "a product of cublasLt", args, space) ? CUBLAS_STATUS_SUCCESS
                                                                     : CUBLAS_STATUS_INVALID_VALUE;
  });
}
}
