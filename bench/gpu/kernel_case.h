// One kernel to be timed: how it is started, what it moves, and what it must give.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/bench_device.h"

namespace muster::cuda {

struct KernelCase {
  std::string name;
  int64_t bytes = 0;  // that it has to move, each once
  std::function<void()> run;
  // What it writes, for Poison, and as numbers.
  void* output = nullptr;
  size_t output_bytes = 0;
  std::function<std::vector<float>()> result;
  // Number i of the result.
  std::function<double(int64_t)> expected;
  double tolerance = 0;  // of what is expected, or of 1 where that is less
  // Instead of poison before the run that is checked: of kernels that work in place.
  std::function<void()> prepare = nullptr;
};

// Of the tensors that all cases share: [batch, side, side, channels].
struct KernelSizes {
  int batch = 512, side = 32, channels = 64;

  int64_t rows() const { return int64_t{batch} * side * side; }
  int64_t count() const { return rows() * channels; }
};

// Calls `use` with each case of T (float or Bf16). A case is good until `use` returns.
using UseCase = std::function<void(const KernelCase&)>;
template <typename T>
void ElementwiseCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use);
template <typename T>
void PoolCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use);
template <typename T>
void NormCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use);
template <typename T>
void RowCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use);
template <typename T>
void ConvolutionCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use);
template <typename T>
void ImageCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use);

// Checks and times all of them, and prints a table. Throws Error at the first wrong number.
struct KernelOptions {
  KernelSizes sizes;
  int repeats = 11;
  std::string only;  // names that have this in them
};
void BenchKernels(const KernelOptions& options);

// The shared tensors of one type: three inputs and an output.
template <typename T>
struct Tensors {
  Tensors(BenchDevice& to, const KernelSizes& s)
      : device(to), sizes(s), output(to.Allocate<T>(s.count())) {
    for (uint32_t salt = 0; salt < 3; ++salt) {
      input[salt] = to.Make<T>(s.count(), [salt](int64_t i) { return InputAt(i, salt); });
    }
  }

  // A case whose output, `count` numbers of U, is at `at`.
  template <typename U>
  KernelCase Case(std::string name, int64_t bytes, U* at, int64_t count, std::function<void()> run,
                  std::function<double(int64_t)> expected, double tolerance = -1) const {
    KernelCase made;
    made.name = std::move(name);
    made.bytes = bytes;
    made.run = std::move(run);
    made.output = at;
    made.output_bytes = static_cast<size_t>(count) * sizeof(U);
    made.result = [to = &device, at, count] { return to->Numbers(at, count); };
    made.expected = std::move(expected);
    made.tolerance = tolerance >= 0 ? tolerance : sizeof(U) == 2 ? 0x1p-8 : 1e-5;
    return made;
  }
  // Of `elements` numbers of T for each one of the tensor.
  KernelCase Whole(std::string name, double elements, std::function<void()> run,
                   std::function<double(int64_t)> expected) const {
    const auto bytes = static_cast<int64_t>(elements * static_cast<double>(bytes_of_one()));
    return Case(std::move(name), bytes, output, sizes.count(), std::move(run), std::move(expected));
  }
  int64_t bytes_of_one() const { return sizes.count() * static_cast<int64_t>(sizeof(T)); }

  BenchDevice& device;
  const KernelSizes sizes;
  T *input[3] = {}, *output;
};

}  // namespace muster::cuda
