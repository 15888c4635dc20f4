// One product by cublasLt, with the algorithm that its heuristic chooses for the shape.
#pragma once

#include <cublasLt.h>
#include <library_types.h>

#include <optional>

#include "worker/backend/cuda/card.h"
#include "worker/backend/cuda/handles.h"

namespace muster::cuda {

// c = activation(a bᵀ + bias). The matrices are row-major without gaps: a is [rows, inner], b is
// [columns, inner], and c is [rows, columns].
struct LtShape {
  int rows, columns, inner;
  cudaDataType_t type;  // of a, b, bias and c
  bool bias = false, relu = false;
};

class LtProduct {
 public:
  LtProduct(const Card& card, const LtShape& shape);

  // Whether cublasLt supports this product.
  bool supported() const { return algorithm_.has_value(); }
  // All addresses must be aligned to 64 bytes.
  void Run(const void* a, const void* b, const void* bias, void* c) const;

 private:
  void FindAlgorithm();

  const Card& card_;
  const bool bias_;
  Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product_;
  Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a_, b_, c_;
  std::optional<cublasLtMatmulAlgo_t> algorithm_;
};

}  // namespace muster::cuda
