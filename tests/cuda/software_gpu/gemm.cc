#include "tests/cuda/software_gpu/gemm.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "tests/cuda/software_gpu/access.h"
#include "tests/cuda/software_gpu/device.h"

namespace muster::software_gpu {
namespace {

// The number of bits of a float's fraction that `dropped` leave, to the nearest, ties to even.
float RoundBits(float value, int dropped) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000) == 0x7f800000) return value;
  const uint32_t half = (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
  return std::bit_cast<float>((bits + half) >> dropped << dropped);
}

// False after a violation.
bool CheckMatrix(const Work& work, const Matrix& matrix, int64_t rows, int64_t columns, bool read,
                 bool write) {
  const size_t size = SizeOf(matrix.type);
  if (matrix.transposed) std::swap(rows, columns);
  if (matrix.leading == rows) {  // without gaps: one column
    rows *= columns;
    columns = 1;
  }
  for (int64_t column = 0; column < columns; ++column) {
    char* const begin =
        static_cast<char*>(matrix.data) + static_cast<size_t>(column * matrix.leading) * size;
    const size_t bytes = static_cast<size_t>(rows) * size;
    if (read && !ReadRange(work, begin, bytes, Undefined::kRefused)) return false;
    if (write && !WriteRange(work, begin, bytes)) return false;
  }
  return true;
}

// The matrix that is meant, by columns without gaps.
std::vector<float> Load(const Matrix& matrix, int64_t rows, int64_t columns, bool tf32) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  const void* const at = Device::Get().memory().Alias(matrix.data);
  size_t to = 0;
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from =
          matrix.transposed ? row * matrix.leading + column : column * matrix.leading + row;
      const float value = LoadNumber(at, matrix.type, from);
      values[to++] = tf32 && matrix.type == CUDA_R_32F ? RoundToTf32(value) : value;
    }
  }
  return values;
}

void Product(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
             bool backwards) {
  for (int64_t j = 0; j < n; ++j) {
    float* const column = c + j * m;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t p = backwards ? k - 1 - i : i;
      const float factor = b[j * k + p];
      const float* const other = a + p * m;
      for (int64_t row = 0; row < m; ++row) column[row] += other[row] * factor;
    }
  }
}

bool HasBias(Epilogue epilogue) {
  return epilogue == Epilogue::kBias || epilogue == Epilogue::kReluBias;
}

}  // namespace

size_t SizeOf(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
      return 4;
    case CUDA_R_16BF:
      return 2;
    default:
      return 0;
  }
}

float LoadNumber(const void* at, cudaDataType type, int64_t index) {
  if (type == CUDA_R_32F) return static_cast<const float*>(at)[index];
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(at)[index]} << 16);
}

void StoreNumber(void* at, cudaDataType type, int64_t index, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(at)[index] = value;
    return;
  }
  static_cast<uint16_t*>(at)[index] =
      static_cast<uint16_t>(std::bit_cast<uint32_t>(RoundBits(value, 16)) >> 16);
}

float RoundToTf32(float value) { return RoundBits(value, 13); }

void Gemm(const Work& work, const GemmArgs& args) {
  const DeviceMemory& memory = Device::Get().memory();
  Matrix before = args.c;
  if (args.before != nullptr) before.data = const_cast<void*>(args.before);
  if (!CheckMatrix(work, args.a, args.m, args.k, true, false) ||
      !CheckMatrix(work, args.b, args.k, args.n, true, false) ||
      !CheckMatrix(work, before, args.m, args.n, args.beta != 0, false)) {
    return;
  }
  const size_t bias_bytes = static_cast<size_t>(args.m) * SizeOf(args.bias_type);
  if (HasBias(args.epilogue) && !ReadRange(work, args.bias, bias_bytes, Undefined::kRefused))
    return;
  if (!CheckMatrix(work, args.c, args.m, args.n, false, true)) return;

  const std::vector<float> a = Load(args.a, args.m, args.k, args.tf32);
  const std::vector<float> b = Load(args.b, args.k, args.n, args.tf32);
  std::vector<float> sums(static_cast<size_t>(args.m * args.n));
  Product(a.data(), b.data(), sums.data(), args.m, args.n, args.k, args.backwards);
  for (int64_t j = 0; j < args.n; ++j) {
    for (int64_t i = 0; i < args.m; ++i) {
      const int64_t at = j * args.c.leading + i;
      float value = args.alpha * sums[static_cast<size_t>(j * args.m + i)];
      if (args.beta != 0) {
        value += args.beta * LoadNumber(memory.Alias(before.data), before.type, at);
      }
      if (HasBias(args.epilogue)) value += LoadNumber(memory.Alias(args.bias), args.bias_type, i);
      // As max(0, x): what is not a number stays so.
      if (args.epilogue == Epilogue::kRelu || args.epilogue == Epilogue::kReluBias) {
        value = value < 0 ? 0 : value;
      }
      StoreNumber(memory.Alias(args.c.data), args.c.type, at, value);
    }
  }
}

}  // namespace muster::software_gpu
