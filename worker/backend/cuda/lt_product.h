// One kind of product by cublasLt: what it is, which algorithms there are for it, and doing it by
// one of them.
#pragma once

#include <cublasLt.h>
#include <library_types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/backend/cuda/card.h"
#include "worker/backend/cuda/handles.h"

namespace muster::cuda {

// In the words of row-major matrices: c = activation(a b + bias), or, if `add`, c += a b.
struct ProductKind {
  int rows = 0, columns = 0, inner = 0, batches = 1;
  int a_type = CUDA_R_32F, b_type = CUDA_R_32F, c_type = CUDA_R_32F;
  int64_t a_row = 0, b_row = 0, c_row = 0;        // from one row to the next, in elements …
  int64_t a_batch = 0, b_batch = 0, c_batch = 0;  // … and from one matrix
  bool a_transposed = false, b_transposed = false;
  bool add = false, bias = false, relu = false;
  uint32_t alignment = 0;  // of all addresses, in bytes: a power of two, at most kMostAlignment

  // What activations, and all else that is allocated, are at least.
  static constexpr uint32_t kMostAlignment = 64;

  // NOLINTNEXTLINE(modernize-use-nullptr): of the compiler's own comparison with 0
  auto operator<=>(const ProductKind&) const = default;
};

// "product" and its numbers. Of anything else there is no kind.
std::string TextOf(const ProductKind& kind);
std::optional<ProductKind> ParseProductKind(std::string_view text);

struct ProductAddresses {
  const void *a = nullptr, *b = nullptr;
  const void* bias = nullptr;  // of the type of c
  void* c = nullptr;
};

class LtProduct {
 public:
  LtProduct(const Card& card, const ProductKind& kind);

  // In the order of cublasLt's guesses; none where it has none. Only those that add up parts in
  // float, and in a fixed order whatever the card is doing besides.
  std::vector<cublasLtMatmulAlgo_t> Algorithms(int most) const;
  // Whether it can be done by this one, in the card's workspace.
  bool Takes(const cublasLtMatmulAlgo_t& algorithm) const;
  void Run(const ProductAddresses& at, const cublasLtMatmulAlgo_t& algorithm) const;

 private:
  const Card& card_;
  const ProductKind kind_;
  Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product_;
  Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a_, b_, c_;
};

}  // namespace muster::cuda
