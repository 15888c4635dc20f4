#include "worker/backend/cuda/products.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <bit>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/tuner.h"

namespace muster::cuda {
namespace {

cublasOperation_t Operation(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

ProductKind KindOf(const ProductShape& shape, const Matrix& a, const Matrix& b,
                   const MutableMatrix& c, bool add) {
  const auto address = [](const void* data) { return reinterpret_cast<uintptr_t>(data); };
  const uintptr_t all =
      address(a.data) | address(b.data) | address(c.data) | ProductKind::kMostAlignment;
  const bool many = shape.batches > 1;
  return {.rows = shape.rows,
          .columns = shape.columns,
          .inner = shape.inner,
          .batches = shape.batches,
          .a_type = a.type,
          .b_type = b.type,
          .c_type = c.type,
          .a_row = a.row_stride,
          .b_row = b.row_stride,
          .c_row = c.row_stride,
          .a_batch = many ? a.batch_stride : 0,
          .b_batch = many ? b.batch_stride : 0,
          .c_batch = many ? c.batch_stride : 0,
          .a_transposed = a.transposed,
          .b_transposed = b.transposed,
          .add = add,
          .alignment = uint32_t{1} << std::countr_zero(all)};
}

ProductKind FusedKind(const Card& card, const ProductShape& shape, bool bias, bool relu) {
  const cudaDataType_t type = CudaTypeOf(card.activation_type());
  return {.rows = shape.rows,
          .columns = shape.columns,
          .inner = shape.inner,
          .a_type = type,
          .b_type = type,
          .c_type = type,
          .a_row = shape.inner,
          .b_row = shape.inner,
          .c_row = shape.columns,
          .b_transposed = true,
          .bias = bias,
          .relu = relu,
          .alignment = ProductKind::kMostAlignment};
}

// cuBLAS's matrices are column-major, so it is told cᵀ = bᵀ aᵀ, whose memory is the same.
void MultiplyByShape(const Card& card, const ProductShape& shape, const Matrix& a, const Matrix& b,
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

}  // namespace

void Multiply(const Card& card, const ProductShape& shape, const Matrix& a, const Matrix& b,
              const MutableMatrix& c, bool add) {
  const auto by_shape = [&] { MultiplyByShape(card, shape, a, b, c, add); };
  Tuner* const tuner = card.tuner();
  if (tuner != nullptr && tuner->Multiply(KindOf(shape, a, b, c, add),
                                          {.a = a.data, .b = b.data, .c = c.data}, by_shape)) {
    return;
  }
  by_shape();
}

FusedProduct::FusedProduct(const Card& card, const ProductShape& shape, bool bias, bool relu)
    : card_(card), kind_(FusedKind(card, shape, bias, relu)), product_(card, kind_) {
  if (!bias && !relu) return;
  const std::vector<cublasLtMatmulAlgo_t> best = product_.Algorithms(1);
  if (!best.empty()) algorithm_ = best.front();
}

void FusedProduct::Run(const void* a, const void* b, const void* bias, const float* bias32,
                       void* c) const {
  const ProductAddresses at{.a = a, .b = b, .bias = bias, .c = c};
  const auto by_shape = [&] { RunByShape(at, bias32); };
  Tuner* const tuner = card_.tuner();
  if (tuner != nullptr && tuner->Multiply(kind_, at, by_shape)) return;
  by_shape();
}

void FusedProduct::RunByShape(const ProductAddresses& at, const float* bias32) const {
  if (algorithm_) return product_.Run(at, *algorithm_);
  const ProductKind& k = kind_;
  const cudaDataType_t type = CudaTypeOf(card_.activation_type());
  MultiplyByShape(card_, {k.rows, k.columns, k.inner},
                  {.data = at.a, .type = type, .row_stride = k.a_row},
                  {.data = at.b, .type = type, .row_stride = k.b_row, .transposed = true},
                  {.data = at.c, .type = type, .row_stride = k.c_row}, false);
  if (type == CUDA_R_32F) {
    AddBias(card_.target(), static_cast<float*>(at.c), bias32, k.relu, k.rows, k.columns);
  } else {
    AddBias(card_.target(), static_cast<Bf16*>(at.c), bias32, k.relu, k.rows, k.columns);
  }
}

}  // namespace muster::cuda
