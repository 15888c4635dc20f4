#include "tests/cuda/software_gpu/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tests/cuda/software_gpu/access.h"
#include "tests/cuda/software_gpu/device.h"

namespace muster::software_gpu {
namespace {

std::string WrongMatrix(const char* name, const Matrix& matrix, int64_t rows, int64_t columns) {
  if (SizeOf(matrix.type) == 0)
    return fmt::format("{}: type {}", name, static_cast<int>(matrix.type));
  if (matrix.leading < std::max<int64_t>(1, matrix.transposed ? columns : rows)) {
    return fmt::format("{}: a leading dimension of {} for {} x {}", name, matrix.leading, rows,
                       columns);
  }
  if (!Device::Get().memory().Contains(matrix.data)) {
    return fmt::format("{} is not in the device's memory", name);
  }
  if (reinterpret_cast<uintptr_t>(matrix.data) % SizeOf(matrix.type) != 0) {
    return fmt::format("{} is misaligned", name);
  }
  return "";
}

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

// Returns op(matrix) in contiguous columns of rounded numbers.
std::vector<float> Load(const Matrix& matrix, int64_t rows, int64_t columns, bool tf32) {
  const void* const at = Device::Get().memory().Alias(matrix.data);
  tf32 = tf32 && matrix.type == CUDA_R_32F;
  const int64_t row_step = matrix.transposed ? matrix.leading : 1;
  const int64_t column_step = matrix.transposed ? 1 : matrix.leading;
  std::vector<float> numbers(static_cast<size_t>(rows * columns));
  float* to = numbers.data();
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      const float number = LoadNumber(at, matrix.type, row * row_step + column * column_step);
      *to++ = tf32 ? RoundToTf32(number) : number;
    }
  }
  return numbers;
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

void MultiplyOne(const Work& work, const GemmArgs& args) {
  if (!CheckMatrix(work, args.a, args.m, args.k, true, false) ||
      !CheckMatrix(work, args.b, args.k, args.n, true, false) ||
      !CheckMatrix(work, args.c, args.m, args.n, args.beta != 0, true)) {
    return;
  }
  const size_t bias_bytes = static_cast<size_t>(args.m) * SizeOf(args.c.type);
  if (args.bias != nullptr && !ReadRange(work, args.bias, bias_bytes, Undefined::kRefused)) return;

  const std::vector<float> a = Load(args.a, args.m, args.k, args.tf32);
  const std::vector<float> b = Load(args.b, args.k, args.n, args.tf32);
  std::vector<float> sums(static_cast<size_t>(args.m * args.n));
  Product(a.data(), b.data(), sums.data(), args.m, args.n, args.k);
  const DeviceMemory& memory = Device::Get().memory();
  if (Device::Get().options().wrong_products) sums.back() = sums.back() * 1.5f + 1;
  for (int64_t j = 0; j < args.n; ++j) {
    for (int64_t i = 0; i < args.m; ++i) {
      const int64_t at = j * args.c.leading + i;
      void* const c = memory.Alias(args.c.data);
      float value = args.alpha * sums[static_cast<size_t>(j * args.m + i)];
      if (args.beta != 0) value += args.beta * LoadNumber(c, args.c.type, at);
      if (args.bias != nullptr) value += LoadNumber(memory.Alias(args.bias), args.c.type, i);
      if (args.relu && value < 0) value = 0;  // unlike max(0, x), keeps NaN
      StoreNumber(c, args.c.type, at, value);
    }
  }
}

}  // namespace

std::string WrongProduct(const GemmArgs& args) {
  std::string wrong = WrongMatrix("A", args.a, args.m, args.k) +
                      WrongMatrix("B", args.b, args.k, args.n) +
                      WrongMatrix("C", args.c, args.m, args.n);
  if (args.m < 0 || args.n < 0 || args.k < 0 || args.count < 0) wrong += "a negative size";
  if (args.a.type != args.b.type) wrong += "A and B are of different types";
  if (args.a.type == CUDA_R_32F && args.c.type != CUDA_R_32F)
    wrong += "C has less precision than A";
  return wrong;
}

bool EnqueueGemm(cudaStream_t stream, const char* name, const GemmArgs& args,
                 const Workspace& workspace) {
  Stream* const on = Device::Get().Find(stream, name);
  if (on == nullptr) return false;
  on->Push(Device::Get().known(), name, nullptr, [args, workspace](const Work& work) {
    SpoilWorkspace(work, workspace);
    GemmArgs one = args;
    for (int i = 0; i < args.count; ++i) {
      MultiplyOne(work, one);
      for (Matrix* matrix : {&one.a, &one.b, &one.c}) {
        const int64_t bytes = matrix->stride * static_cast<int64_t>(SizeOf(matrix->type));
        matrix->data = static_cast<char*>(matrix->data) + bytes;
      }
    }
  });
  return true;
}

}  // namespace muster::software_gpu
