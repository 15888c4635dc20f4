#include "worker/backend/cuda/products.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {
namespace {

cublasOperation_t Operation(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

}  // namespace

// cuBLAS's matrices are column-major, so it computes cᵀ = bᵀ aᵀ, which has the same memory layout.
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
    : card_(card), shape_(shape), relu_(relu) {
  if (!bias && !relu) return;
  fused_.emplace(card, LtShape{.rows = shape.rows,
                               .columns = shape.columns,
                               .inner = shape.inner,
                               .type = CudaTypeOf(card.activation_type()),
                               .bias = bias,
                               .relu = relu});
  if (!fused_->supported()) fused_.reset();
}

void FusedProduct::Run(const void* a, const void* b, const void* bias, const float* bias32,
                       void* c) const {
  if (fused_) return fused_->Run(a, b, bias, c);
  const cudaDataType_t type = CudaTypeOf(card_.activation_type());
  Multiply(card_, shape_, {.data = a, .type = type, .row_stride = shape_.inner},
           {.data = b, .type = type, .row_stride = shape_.inner, .transposed = true},
           {.data = c, .type = type, .row_stride = shape_.columns});
  WithElement(card_.activation_type(), [&]<typename T>(std::type_identity<T>) {
    AddBias(card_.target(), static_cast<T*>(c), bias32, relu_, shape_.rows, shape_.columns);
  });
}

}  // namespace muster::cuda
