// Products of row-major matrices by cuBLAS.
#pragma once

#include <library_types.h>

#include <cstdint>
#include <optional>

#include "worker/backend/cuda/card.h"
#include "worker/backend/cuda/lt_product.h"

namespace muster::cuda {

// A row-major matrix, or one for each batch of a product.
struct Matrix {
  const void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  int64_t row_stride = 0;
  bool transposed = false;
  int64_t batch_stride = 0;
};
struct MutableMatrix {
  void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  int64_t row_stride = 0;
  int64_t batch_stride = 0;
};
struct ProductShape {
  int rows, columns, inner;  // rows and columns of the result; `inner` is summed over
  int batches = 1;
};

// c = a b, or c += a b with `add`. Sums are computed in float.
void Multiply(const Card& card, const ProductShape& shape, const Matrix& a, const Matrix& b,
              const MutableMatrix& c, bool add = false);

// c = activation(a bᵀ + bias). Bias and relu are part of the product if cuBLASLt supports this for
// the shape; otherwise they are a separate pass. a, b, bias and c have the GPU's activation type.
class FusedProduct {
 public:
  // a: [rows, inner], b: [columns, inner], both without gaps.
  FusedProduct(const Card& card, const ProductShape& shape, bool bias, bool relu);
  FusedProduct(const FusedProduct&) = delete;

  // bias32 is the bias as floats, for the separate pass.
  void Run(const void* a, const void* b, const void* bias, const float* bias32, void* c) const;

 private:
  const Card& card_;
  const ProductShape shape_;
  const bool relu_;
  std::optional<LtProduct> fused_;  // empty if there are two passes
};

}  // namespace muster::cuda
