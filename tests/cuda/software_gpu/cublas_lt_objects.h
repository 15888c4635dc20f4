// The structs behind cublasLt's handles.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <string>

#include "tests/cuda/software_gpu/library.h"

struct cublasLtContext {};

namespace muster::software_gpu {

struct LtProduct {
  cublasComputeType_t compute;
  cublasOperation_t transpose_a = CUBLAS_OP_N;
  cublasOperation_t transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t bias_type = -1;  // the type of D by default
};

struct LtLayout {
  uint32_t type;
  uint64_t rows;
  uint64_t columns;
  int64_t leading;
};

struct LtPreference {
  uint64_t most_workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<uint32_t, 4> alignments = {256, 256, 256, 256};  // of A, B, C and D
};

inline LtProduct& At(cublasLtMatmulDesc_t product) {
  return *reinterpret_cast<LtProduct*>(product);
}
inline LtLayout& At(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<LtLayout*>(layout); }
inline LtPreference& At(cublasLtMatmulPreference_t preference) {
  return *reinterpret_cast<LtPreference*>(preference);
}

cublasStatus_t RefuseLt(cublasStatus_t status, const std::string& what);
cublasStatus_t LtCall(const char* call, const std::function<cublasStatus_t()>& body);

}  // namespace muster::software_gpu
