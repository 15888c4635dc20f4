#include "worker/backend/cuda/lt_product.h"

namespace muster::cuda {
namespace {

template <typename T>
void Set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  Check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)),
        "describe a product");
}

// Limits the workspace, requires the alignment of activations, and excludes algorithms that add
// partial sums in the result or in its type.
class Preference {
 public:
  Preference() {
    cublasLtMatmulPreference_t preference{};
    Check(cublasLtMatmulPreferenceCreate(&preference), "describe a product");
    preference_ = decltype(preference_)(preference);
    Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{Card::kWorkspaceBytes});
    constexpr uint32_t kAlignment = 64;  // of activations
    Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment);
    Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment);
    Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
    Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
    constexpr uint32_t kInFloat = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // or no partial sums
    Prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kInFloat);
  }
  cublasLtMatmulPreference_t get() const { return preference_.get(); }

 private:
  template <typename T>
  void Prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    Check(cublasLtMatmulPreferenceSetAttribute(get(), attribute, &value, sizeof(value)),
          "describe a product");
  }
  Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference_;
};

cublasLtEpilogue_t EpilogueOf(const LtShape& shape) {
  if (shape.bias) return shape.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return shape.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

// cublasLt's matrices are column-major, so a row-major matrix is passed as its transpose.
cublasLtMatrixLayout_t MakeLayout(cudaDataType_t type, int rows, int columns) {
  cublasLtMatrixLayout_t layout{};
  Check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(columns),
                                   static_cast<uint64_t>(rows), columns),
        "describe a matrix");
  return layout;
}

}  // namespace

// cublasLt computes cᵀ = b aᵀ, which has the same memory layout.
LtProduct::LtProduct(const Card& card, const LtShape& shape) : card_(card), bias_(shape.bias) {
  cublasLtMatmulDesc_t product{};
  Check(cublasLtMatmulDescCreate(&product, card_.compute_type(), CUDA_R_32F), "describe a product");
  product_ = decltype(product_)(product);
  Set(product, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  Set(product, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  Set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(shape));
  a_ = decltype(a_)(MakeLayout(shape.type, shape.rows, shape.inner));
  b_ = decltype(b_)(MakeLayout(shape.type, shape.columns, shape.inner));
  c_ = decltype(c_)(MakeLayout(shape.type, shape.rows, shape.columns));
  FindAlgorithm();
}

void LtProduct::FindAlgorithm() {
  const Preference preference;
  cublasLtMatmulHeuristicResult_t guess{};
  int found = 0;
  const cublasStatus_t result =
      cublasLtMatmulAlgoGetHeuristic(card_.cublas_lt(), product_.get(), b_.get(), a_.get(),
                                     c_.get(), c_.get(), preference.get(), 1, &guess, &found);
  const bool good = result == CUBLAS_STATUS_SUCCESS && found == 1;
  if (good && guess.state == CUBLAS_STATUS_SUCCESS) algorithm_ = guess.algo;
}

void LtProduct::Run(const void* a, const void* b, const void* bias, void* c) const {
  const float one = 1, zero = 0;
  if (bias_) Set(product_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  Check(cublasLtMatmul(card_.cublas_lt(), product_.get(), &one, b, b_.get(), a, a_.get(), &zero, c,
                       c_.get(), c, c_.get(), &*algorithm_, card_.workspace(),
                       Card::kWorkspaceBytes, card_.stream(Queue::kCompute)),
        "multiply matrices");
}

}  // namespace muster::cuda
