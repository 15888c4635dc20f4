// A kernel to benchmark: how to start it, how many bytes it moves, and its expected result.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/bench_device.h"

namespace muster::cuda {

struct KernelCase {
  std::string name;
  int64_t bytes = 0;  // number of bytes that it must move, each counted once
  std::function<void()> run;
  // The output, as memory for Poison and as values.
  void* output = nullptr;
  size_t output_bytes = 0;
  std::function<std::vector<float>()> result;
  // Returns the expected value i of the result.
  std::function<double(int64_t)> expected;
  double tolerance = 0;  // relative to the larger of the expected value and 1
  // For kernels that work in place: called instead of Poison before the verified run.
  std::function<void()> prepare = nullptr;
};

// The size of the tensors that all cases share: [batch, side, side, channels].
struct KernelSizes {
  int batch = 512, side = 32, channels = 64;

  int64_t rows() const { return int64_t{batch} * side * side; }
  int64_t count() const { return rows() * channels; }
};

// These functions call `use` with each case of T (float or Bf16). A case is valid only until `use`
// returns.
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

// Options for BenchKernels, which verifies and times all kernels and prints a table. It throws
// Error at the end if a kernel is wrong.
struct KernelOptions {
  KernelSizes sizes;
  int repeats = 11;
  std::string only;    // run only kernels whose names contain this
  bool exact = false;  // `only` is the whole name
  std::string type;    // "FP32" or "BF16"; "": both
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

  // Makes a case whose output consists of `count` values of type U at `at`.
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
  // Makes a case on the whole tensor that moves `elements` values of T per element.
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
