// Products of matrices by cuBLAS, in the words of row-major matrices.
#pragma once

#include <library_types.h>

#include <cstdint>
#include <optional>

#include "worker/backend/cuda/card.h"
#include "worker/backend/cuda/lt_product.h"

namespace muster::cuda {

// A row-major matrix, or as many of them as a product has batches.
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
  int rows, columns, inner;  // of the result; what is summed over
  int batches = 1;
};

// c = a b, or, if `add`, c += a b. Sums are in float.
void Multiply(const Card& card, const ProductShape& shape, const Matrix& a, const Matrix& b,
              const MutableMatrix& c, bool add = false);

// c = activation(a bᵀ + bias), with bias and relu in the same pass where cuBLASLt has that for the
// shape, else in a pass of its own. a, b, bias and c are of the card's activation type.
class FusedProduct {
 public:
  // a: [rows, inner], b: [columns, inner], both without gaps.
  FusedProduct(const Card& card, const ProductShape& shape, bool bias, bool relu);
  FusedProduct(const FusedProduct&) = delete;

  // bias32: the same as floats, for the pass of its own.
  void Run(const void* a, const void* b, const void* bias, const float* bias32, void* c) const;

 private:
  const Card& card_;
  const ProductShape shape_;
  const bool relu_;
  std::optional<LtProduct> fused_;  // none: two passes
};

}  // namespace muster::cuda
