#include "worker/backend/cuda/products.h"

#include <cuda_bf16.h>

#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {
namespace {

cublasOperation_t Operation(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

// What activations, and all else that is allocated, are at least.
constexpr uint32_t kAlignment = 64;

template <typename T>
void Set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  Check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)),
        "describe a product");
}

// Without workspaces that are too large, and for addresses that are aligned as ours are.
class Preference {
 public:
  Preference() {
    cublasLtMatmulPreference_t preference{};
    Check(cublasLtMatmulPreferenceCreate(&preference), "describe a product");
    preference_ = decltype(preference_)(preference);
    Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{Card::kWorkspaceBytes});
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
    Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
  }
  cublasLtMatmulPreference_t get() const { return preference_.get(); }

 private:
  template <typename T>
  void Set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    Check(cublasLtMatmulPreferenceSetAttribute(get(), attribute, &value, sizeof(value)),
          "describe a product");
  }
  Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference_;
};

}  // namespace

// cuBLAS's matrices are column-major, so it is told cᵀ = bᵀ aᵀ, whose memory is the same.
void Multiply(const Card& card, const ProductShape& shape, const Matrix& a, const Matrix& b,
              const MutableMatrix& c, bool add) {
  const float one = 1, before = add ? 1 : 0;
  const auto narrow = [](int64_t stride) { return static_cast<int>(stride); };
  const cublasOperation_t of_b = Operation(b.transposed), of_a = Operation(a.transposed);
  const cublasStatus_t result =
      shape.batches == 1
          ? cublasGemmEx(card.cublas(), of_b, of_a, shape.columns, shape.rows, shape.inner, &one,
                         b.data, b.type, narrow(b.row_stride), a.data, a.type, narrow(a.row_stride),
                         &before, c.data, c.type, narrow(c.row_stride), card.compute_type(),
                         CUBLAS_GEMM_DEFAULT)
          : cublasGemmStridedBatchedEx(
                card.cublas(), of_b, of_a, shape.columns, shape.rows, shape.inner, &one, b.data,
                b.type, narrow(b.row_stride), b.batch_stride, a.data, a.type, narrow(a.row_stride),
                a.batch_stride, &before, c.data, c.type, narrow(c.row_stride), c.batch_stride,
                shape.batches, card.compute_type(), CUBLAS_GEMM_DEFAULT);
  Check(result, "multiply matrices");
}

FusedProduct::FusedProduct(const Card& card, const ProductShape& shape, bool bias, bool relu)
    : card_(card), shape_(shape), bias_(bias), relu_(relu) {
  fused_ = (bias || relu) && Describe();
}

// False where cuBLASLt has nothing for it.
bool FusedProduct::Describe() {
  const cudaDataType_t type = CudaTypeOf(card_.activation_type());
  const auto rows = static_cast<uint64_t>(shape_.rows), inner = static_cast<uint64_t>(shape_.inner),
             columns = static_cast<uint64_t>(shape_.columns);
  cublasLtMatmulDesc_t product{};
  Check(cublasLtMatmulDescCreate(&product, card_.compute_type(), CUDA_R_32F), "describe a product");
  product_ = decltype(product_)(product);
  Set(product, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  Set(product, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  const cublasLtEpilogue_t epilogue =
      bias_ ? relu_ ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU;
  Set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  const auto layout = [&](uint64_t height, uint64_t width) {
    cublasLtMatrixLayout_t matrix{};
    Check(cublasLtMatrixLayoutCreate(&matrix, type, height, width, static_cast<int64_t>(height)),
          "describe a matrix");
    return decltype(a_)(matrix);
  };
  b_ = layout(inner, columns);
  a_ = layout(inner, rows);
  c_ = layout(columns, rows);
  const Preference preference;
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t result =
      cublasLtMatmulAlgoGetHeuristic(card_.cublas_lt(), product, b_.get(), a_.get(), c_.get(),
                                     c_.get(), preference.get(), 1, &best, &found);
  if (result != CUBLAS_STATUS_SUCCESS || found == 0) return false;
  algorithm_ = best.algo;
  return true;
}

void FusedProduct::Run(const void* a, const void* b, const void* bias, const float* bias32,
                       void* c) const {
  if (!fused_) return RunInTwoPasses(a, b, bias32, c);
  const float one = 1, zero = 0;
  if (bias_) Set(product_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  Check(cublasLtMatmul(card_.cublas_lt(), product_.get(), &one, b, b_.get(), a, a_.get(), &zero, c,
                       c_.get(), c, c_.get(), &algorithm_, card_.workspace(), Card::kWorkspaceBytes,
                       card_.stream(Queue::kCompute)),
        "multiply matrices");
}

void FusedProduct::RunInTwoPasses(const void* a, const void* b, const float* bias32,
                                  void* c) const {
  const cudaDataType_t type = CudaTypeOf(card_.activation_type());
  Multiply(card_, shape_, {.data = a, .type = type, .row_stride = shape_.inner},
           {.data = b, .type = type, .row_stride = shape_.inner, .transposed = true},
           {.data = c, .type = type, .row_stride = shape_.columns});
  if (type == CUDA_R_32F) {
    AddBias(card_.target(), static_cast<float*>(c), bias32, relu_, shape_.rows, shape_.columns);
  } else {
    AddBias(card_.target(), static_cast<Bf16*>(c), bias32, relu_, shape_.rows, shape_.columns);
  }
}

}  // namespace muster::cuda
