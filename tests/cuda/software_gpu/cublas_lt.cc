// cublasLt on the software GPU: products with an epilogue, and a heuristic that offers a single
// algorithm, which needs a workspace.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "tests/cuda/software_gpu/cublas_lt_objects.h"
#include "tests/cuda/software_gpu/gemm.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

namespace {

constexpr uint64_t kAlgorithm = 0x6d7573746572;
constexpr size_t kWorkspace = 64 << 10;
constexpr uint32_t kInTheTypeOfD =
    CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;

// Identifies the product that an algorithm was made for.
uint64_t Fingerprint(const LtProduct& product, const LtLayout& a, const LtLayout& b,
                     const LtLayout& d) {
  const std::string text =
      fmt::format("{} {} {} {} {}", static_cast<int>(product.compute),
                  static_cast<int>(product.transpose_a), static_cast<int>(product.transpose_b),
                  static_cast<int>(product.epilogue), product.bias_type) +
      fmt::format(" {} {} {} {} {} {} {} {} {} {}", a.type, a.rows, a.columns, a.leading, b.rows,
                  b.columns, b.leading, d.type, d.rows, d.columns);
  return std::hash<std::string>()(text);
}

Matrix MatrixOf(const void* data, const LtLayout& layout, cublasOperation_t operation) {
  return {const_cast<void*>(data), static_cast<cudaDataType>(layout.type), layout.leading,
          operation != CUBLAS_OP_N};
}

// Whether a GPU supports it, according to the manual.
bool IsSupported(const LtProduct& product, const LtLayout& a, const LtLayout& b,
                 const LtLayout& d) {
  if (a.type == CUDA_R_16BF && !HasNarrowTypes()) return false;
  if (a.type != b.type || SizeOf(static_cast<cudaDataType>(a.type)) == 0) return false;
  if (d.type != a.type && d.type != CUDA_R_32F) return false;
  // The bias has the type of D.
  if (product.bias_type >= 0 && static_cast<uint32_t>(product.bias_type) != d.type) return false;
  return product.compute == CUBLAS_COMPUTE_32F || product.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
         product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
}

std::string WrongShapes(const LtProduct& product, const LtLayout& a, const LtLayout& b,
                        const LtLayout& c, const LtLayout& d) {
  const bool ta = product.transpose_a != CUBLAS_OP_N;
  const bool tb = product.transpose_b != CUBLAS_OP_N;
  const uint64_t m = ta ? a.columns : a.rows;
  const uint64_t k = ta ? a.rows : a.columns;
  const uint64_t k_of_b = tb ? b.columns : b.rows;
  const uint64_t n = tb ? b.rows : b.columns;
  if (k != k_of_b || d.rows != m || d.columns != n || c.rows != m || c.columns != n) {
    return fmt::format("A is {} x {}, B is {} x {}, D is {} x {}", m, k, k_of_b, n, d.rows,
                       d.columns);
  }
  for (const LtLayout* layout : {&a, &b, &c, &d}) {
    if (layout->leading < static_cast<int64_t>(layout->rows)) {
      return fmt::format("a leading dimension of {} for {} rows", layout->leading, layout->rows);
    }
  }
  return "";
}

Epilogue EpilogueOf(cublasLtEpilogue_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_RELU:
      return Epilogue::kRelu;
    case CUBLASLT_EPILOGUE_BIAS:
      return Epilogue::kBias;
    case CUBLASLT_EPILOGUE_RELU_BIAS:
      return Epilogue::kReluBias;
    default:
      return Epilogue::kNone;
  }
}

// Stored in data[3]: the required alignments of A, B, C and D, 16 bits each.
uint64_t Pack(const std::array<uint32_t, 4>& alignments) {
  uint64_t packed = 0;
  for (size_t i = 0; i < alignments.size(); ++i) packed |= uint64_t{alignments[i]} << 16 * i;
  return packed;
}

// A bias needs the same alignment as the matrices.
std::string WrongAlignment(uint64_t packed, const std::array<const void*, 4>& matrices,
                           const void* bias) {
  for (size_t i = 0; i < matrices.size(); ++i) {
    const uint64_t alignment = packed >> 16 * i & 0xffff;
    if (reinterpret_cast<uintptr_t>(matrices[i]) % alignment != 0) {
      return fmt::format("{} is not aligned to {} bytes, which the heuristic assumed", "ABCD"[i],
                         alignment);
    }
  }
  const uint64_t least = std::min<uint64_t>(packed >> 48, 16);
  if (reinterpret_cast<uintptr_t>(bias) % least == 0) return "";
  return fmt::format("the bias is not aligned to {} bytes", least);
}

cublasLtMatmulHeuristicResult_t Result(uint64_t fingerprint, uint64_t alignments) {
  cublasLtMatmulHeuristicResult_t result = {};
  result.algo.data[0] = kAlgorithm;
  result.algo.data[1] = fingerprint;
  result.algo.data[2] = kWorkspace;
  result.algo.data[3] = alignments;
  result.workspaceSize = kWorkspace;
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  return result;
}

// Returns the error in the algorithm or workspace of a call, or "".
std::string WrongAlgorithm(const cublasLtMatmulAlgo_t* algorithm, uint64_t fingerprint,
                           const Workspace& workspace) {
  if (algorithm == nullptr) return "no algorithm: cublasLt may choose different ones";
  if (algorithm->data[0] != kAlgorithm) return "an algorithm that is not from the heuristic";
  if (algorithm->data[1] != fingerprint) return "an algorithm for another product";
  if (algorithm->data[2] > workspace.bytes) {
    return fmt::format("a workspace of {} bytes, but the algorithm needs {}", workspace.bytes,
                       algorithm->data[2]);
  }
  return WrongWorkspace(workspace);
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  return LtCall("cublasLtMatmulAlgoGetHeuristic", [&] {
    *found = 0;
    const std::string wrong = WrongShapes(At(product), At(a), At(b), At(c), At(d));
    if (!wrong.empty()) return RefuseLt(CUBLAS_STATUS_INVALID_VALUE, wrong);
    if (!IsSupported(At(product), At(a), At(b), At(d))) return CUBLAS_STATUS_NOT_SUPPORTED;
    const LtPreference& prefer = At(preference);
    if (At(d).type != CUDA_R_32F && (prefer.reductions & kInTheTypeOfD) != 0) {
      return RefuseLt(
          CUBLAS_STATUS_INVALID_VALUE,
          "algorithms whose partial sums are rounded to the type of D are not excluded");
    }
    const uint64_t fingerprint = Fingerprint(At(product), At(a), At(b), At(d));
    if (wanted < 1 || prefer.most_workspace < kWorkspace) return CUBLAS_STATUS_NOT_SUPPORTED;
    results[(*found)++] = Result(fingerprint, Pack(prefer.alignments));
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  return LtCall("cublasLtMatmul", [&] {
    const DeviceMemory& memory = Device::Get().memory();
    const LtProduct& with = At(product);
    const Epilogue epilogue = EpilogueOf(with.epilogue);
    const Workspace space = {workspace, workspace_bytes};
    std::string wrong = WrongShapes(with, At(a_layout), At(b_layout), At(c_layout), At(d_layout));
    if (!Device::Get().IsTracked(handle)) wrong = "no such handle";
    if (epilogue == Epilogue::kNone && with.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      wrong = fmt::format("epilogue {}", static_cast<int>(with.epilogue));
    }
    for (const void* matrix : {a, b, c, static_cast<const void*>(d)}) {
      if (!memory.Contains(matrix)) wrong = "a matrix that is not in the device's memory";
    }
    if (memory.Contains(alpha) || memory.Contains(beta)) wrong = "alpha or beta is on the device";
    if (wrong.empty()) {
      wrong = WrongAlgorithm(algorithm, Fingerprint(with, At(a_layout), At(b_layout), At(d_layout)),
                             space);
    }
    if (wrong.empty()) wrong = WrongAlignment(algorithm->data[3], {a, b, c, d}, with.bias);
    if (!wrong.empty()) return RefuseLt(CUBLAS_STATUS_INVALID_VALUE, wrong);
    Stream* const on = Device::Get().Find(stream, "cublasLtMatmul");
    if (on == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    const Matrix from = MatrixOf(a, At(a_layout), with.transpose_a);
    const GemmArgs args = {
        .m = static_cast<int64_t>(At(d_layout).rows),
        .n = static_cast<int64_t>(At(d_layout).columns),
        .k = static_cast<int64_t>(from.transposed ? At(a_layout).rows : At(a_layout).columns),
        .alpha = *static_cast<const float*>(alpha),
        .beta = *static_cast<const float*>(beta),
        .a = from,
        .b = MatrixOf(b, At(b_layout), with.transpose_b),
        .c = MatrixOf(d, At(d_layout), CUBLAS_OP_N),
        .before = c,
        .tf32 = with.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && HasNarrowTypes(),
        .epilogue = epilogue,
        .bias = with.bias,
        .bias_type =
            static_cast<cudaDataType>(with.bias_type < 0 ? At(d_layout).type : with.bias_type)};
    on->Push(Device::Get().known(), "a product of cublasLt", nullptr,
             [args, space](const Work& work) {
               SpoilWorkspace(work, space);
               Gemm(work, args);
             });
    return CUBLAS_STATUS_SUCCESS;
  });
}
}
