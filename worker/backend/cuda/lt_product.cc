#include "worker/backend/cuda/lt_product.h"

#include <fmt/core.h>

#include <array>
#include <bit>
#include <charconv>

namespace muster::cuda {
namespace {

constexpr std::string_view kProduct = "product";

template <typename T>
void Set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  Check(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)),
        "describe a product");
}

// Without workspaces that are too large, for addresses that are aligned as ours are, and without
// algorithms that add parts up in the result itself, or in its type.
class Preference {
 public:
  explicit Preference(uint32_t alignment) {
    cublasLtMatmulPreference_t preference{};
    Check(cublasLtMatmulPreferenceCreate(&preference), "describe a product");
    preference_ = decltype(preference_)(preference);
    Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{Card::kWorkspaceBytes});
    Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    constexpr uint32_t kInFloat = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;  // or no parts at all
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

cublasLtEpilogue_t EpilogueOf(const ProductKind& kind) {
  if (kind.bias) return kind.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return kind.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

// A row-major matrix as cublasLt has it: by columns, and so transposed.
struct Stored {
  int type;
  int64_t rows, columns, row_stride;
  int batches;
  int64_t batch_stride;
};

cublasLtMatrixLayout_t MakeLayout(const Stored& matrix) {
  cublasLtMatrixLayout_t layout{};
  Check(cublasLtMatrixLayoutCreate(&layout, static_cast<cudaDataType_t>(matrix.type),
                                   static_cast<uint64_t>(matrix.columns),
                                   static_cast<uint64_t>(matrix.rows), matrix.row_stride),
        "describe a matrix");
  return layout;
}

void SetBatches(cublasLtMatrixLayout_t layout, const Stored& matrix) {
  if (matrix.batches == 1) return;
  Check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                         &matrix.batches, sizeof matrix.batches),
        "describe a matrix");
  Check(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &matrix.batch_stride, sizeof matrix.batch_stride),
        "describe a matrix");
}

constexpr size_t kNumbers = 19;

std::array<int64_t, kNumbers> NumbersOf(const ProductKind& k) {
  return {k.rows,         k.columns, k.inner, k.batches, k.a_type,   k.b_type,  k.c_type,
          k.a_row,        k.b_row,   k.c_row, k.a_batch, k.b_batch,  k.c_batch, k.a_transposed,
          k.b_transposed, k.add,     k.bias,  k.relu,    k.alignment};
}

// False where cublasLt should not even be asked.
bool IsSane(const std::array<int64_t, kNumbers>& n) {
  constexpr int64_t kMost = INT32_MAX;
  for (size_t i = 0; i < kNumbers; ++i) {
    if (n[i] < (i < 4 ? 1 : 0) || n[i] > kMost) return false;
    if (i >= 13 && i < 18 && n[i] > 1) return false;
  }
  return std::has_single_bit(static_cast<uint64_t>(n[18])) && n[18] <= ProductKind::kMostAlignment;
}

}  // namespace

std::string TextOf(const ProductKind& kind) {
  std::string text(kProduct);
  for (const int64_t number : NumbersOf(kind)) text += fmt::format(" {}", number);
  return text;
}

std::optional<ProductKind> ParseProductKind(std::string_view text) {
  if (!text.starts_with(kProduct)) return std::nullopt;
  const char* at = text.data() + kProduct.size();
  const char* const end = text.data() + text.size();
  std::array<int64_t, kNumbers> n{};
  for (int64_t& number : n) {
    if (at == end || *at++ != ' ') return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return std::nullopt;
    at = next;
  }
  if (at != end || !IsSane(n)) return std::nullopt;
  const auto narrow = [&](size_t i) { return static_cast<int>(n[i]); };
  return ProductKind{.rows = narrow(0),
                     .columns = narrow(1),
                     .inner = narrow(2),
                     .batches = narrow(3),
                     .a_type = narrow(4),
                     .b_type = narrow(5),
                     .c_type = narrow(6),
                     .a_row = n[7],
                     .b_row = n[8],
                     .c_row = n[9],
                     .a_batch = n[10],
                     .b_batch = n[11],
                     .c_batch = n[12],
                     .a_transposed = n[13] != 0,
                     .b_transposed = n[14] != 0,
                     .add = n[15] != 0,
                     .bias = n[16] != 0,
                     .relu = n[17] != 0,
                     .alignment = static_cast<uint32_t>(n[18])};
}

// cuBLAS's matrices are column-major, so it is told cᵀ = bᵀ aᵀ, whose memory is the same.
LtProduct::LtProduct(const Card& card, const ProductKind& kind) : card_(card), kind_(kind) {
  cublasLtMatmulDesc_t product{};
  Check(cublasLtMatmulDescCreate(&product, card_.compute_type(), CUDA_R_32F), "describe a product");
  product_ = decltype(product_)(product);
  Set(product, CUBLASLT_MATMUL_DESC_TRANSA, kind.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(product, CUBLASLT_MATMUL_DESC_TRANSB, kind.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(kind));
  const auto layout = [&](int type, int64_t rows, int64_t columns, bool transposed, int64_t stride,
                          int64_t batch_stride) {
    if (transposed) std::swap(rows, columns);
    const Stored matrix{type, rows, columns, stride, kind_.batches, batch_stride};
    decltype(a_) made(MakeLayout(matrix));
    SetBatches(made.get(), matrix);
    return made;
  };
  a_ = layout(kind.a_type, kind.rows, kind.inner, kind.a_transposed, kind.a_row, kind.a_batch);
  b_ = layout(kind.b_type, kind.inner, kind.columns, kind.b_transposed, kind.b_row, kind.b_batch);
  c_ = layout(kind.c_type, kind.rows, kind.columns, false, kind.c_row, kind.c_batch);
}

std::vector<cublasLtMatmulAlgo_t> LtProduct::Algorithms(int most) const {
  const Preference preference(kind_.alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> guesses(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t result = cublasLtMatmulAlgoGetHeuristic(
      card_.cublas_lt(), product_.get(), b_.get(), a_.get(), c_.get(), c_.get(), preference.get(),
      most, guesses.data(), &found);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  if (result != CUBLAS_STATUS_SUCCESS) return algorithms;
  for (int i = 0; i < found; ++i) {
    const auto& guess = guesses[static_cast<size_t>(i)];
    if (guess.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(guess.algo);
  }
  return algorithms;
}

bool LtProduct::Takes(const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(card_.cublas_lt(), product_.get(), b_.get(), a_.get(), c_.get(),
                                 c_.get(), &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= Card::kWorkspaceBytes;
}

void LtProduct::Run(const ProductAddresses& at, const cublasLtMatmulAlgo_t& algorithm) const {
  const float one = 1, before = kind_.add ? 1 : 0;
  if (kind_.bias) Set(product_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, at.bias);
  Check(cublasLtMatmul(card_.cublas_lt(), product_.get(), &one, at.b, b_.get(), at.a, a_.get(),
                       &before, at.c, c_.get(), at.c, c_.get(), &algorithm, card_.workspace(),
                       Card::kWorkspaceBytes, card_.stream(Queue::kCompute)),
        "multiply matrices");
}

}  // namespace muster::cuda
