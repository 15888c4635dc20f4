#include "tests/cuda/software_gpu/gemm.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/cuda/software_gpu/access.h"
#include "tests/cuda/software_gpu/device.h"

namespace muster::software_gpu {
namespace {

// Returns false after a violation.
bool CheckMatrix(const Work& work, const Matrix& matrix, int64_t rows, int64_t columns, bool read,
                 bool write) {
  const size_t size = SizeOf(matrix.type);
  if (matrix.transposed) std::swap(rows, columns);
  if (matrix.leading == rows) {  // contiguous: treated as one column
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

// Returns op(matrix) in contiguous columns. If memory is laid out differently, converts into
// `made`.
const float* Load(const Matrix& matrix, int64_t rows, int64_t columns, bool tf32,
                  std::vector<float>& made) {
  const void* const at = Device::Get().memory().Alias(matrix.data);
  tf32 = tf32 && matrix.type == CUDA_R_32F;
  if (matrix.type == CUDA_R_32F && !tf32 && !matrix.transposed && matrix.leading == rows) {
    return static_cast<const float*>(at);
  }
  made.resize(static_cast<size_t>(rows * columns));
  const auto load = [&](int64_t row, int64_t column, int64_t from) {
    const float value = LoadNumber(at, matrix.type, from);
    made[static_cast<size_t>(column * rows + row)] = tf32 ? RoundToTf32(value) : value;
  };
  if (!matrix.transposed) {
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t row = 0; row < rows; ++row) load(row, column, column * matrix.leading + row);
    }
    return made.data();
  }
  // Works in tiles, so that neither side is accessed with a large stride only.
  constexpr int64_t kTile = 16;
  for (int64_t tile = 0; tile < columns; tile += kTile) {
    const int64_t end = std::min(tile + kTile, columns);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = tile; column < end; ++column) {
        load(row, column, row * matrix.leading + column);
      }
    }
  }
  return made.data();
}

// Sums the products of each result one after another. Adds four at a time to a sum in a register,
// in the same order.
void Product(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  for (int64_t j = 0; j < n; ++j) {
    float* const column = c + j * m;
    const float* const factors = b + j * k;
    int64_t i = 0;
    for (; i + 4 <= k; i += 4) {
      const float *const a0 = a + i * m, *const a1 = a + (i + 1) * m, *const a2 = a + (i + 2) * m,
                         *const a3 = a + (i + 3) * m;
      const float f0 = factors[i], f1 = factors[i + 1], f2 = factors[i + 2], f3 = factors[i + 3];
      for (int64_t row = 0; row < m; ++row) {
        float sum = column[row];
        sum += a0[row] * f0;
        sum += a1[row] * f1;
        sum += a2[row] * f2;
        sum += a3[row] * f3;
        column[row] = sum;
      }
    }
    for (; i < k; ++i) {
      const float* const other = a + i * m;
      const float factor = factors[i];
      for (int64_t row = 0; row < m; ++row) column[row] += other[row] * factor;
    }
  }
}

bool HasBias(Epilogue epilogue) {
  return epilogue == Epilogue::kBias || epilogue == Epilogue::kReluBias;
}

}  // namespace

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

  std::vector<float> a_made, b_made, sums(static_cast<size_t>(args.m * args.n));
  Product(Load(args.a, args.m, args.k, args.tf32, a_made),
          Load(args.b, args.k, args.n, args.tf32, b_made), sums.data(), args.m, args.n, args.k);
  if (Device::Get().options().wrong_products) sums.back() = sums.back() * 1.5f + 1;
  for (int64_t j = 0; j < args.n; ++j) {
    for (int64_t i = 0; i < args.m; ++i) {
      const int64_t at = j * args.c.leading + i;
      float value = args.alpha * sums[static_cast<size_t>(j * args.m + i)];
      if (args.beta != 0) {
        value += args.beta * LoadNumber(memory.Alias(before.data), before.type, at);
      }
      if (HasBias(args.epilogue)) value += LoadNumber(memory.Alias(args.bias), args.bias_type, i);
      // Unlike max(0, x), keeps NaN.
      if (args.epilogue == Epilogue::kRelu || args.epilogue == Epilogue::kReluBias) {
        value = value < 0 ? 0 : value;
      }
      StoreNumber(memory.Alias(args.c.data), args.c.type, at, value);
    }
  }
}

}  // namespace muster::software_gpu
