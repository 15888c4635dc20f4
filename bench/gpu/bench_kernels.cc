#include <cuda_bf16.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "bench/gpu/kernel_case.h"
#include "common/base/error.h"

namespace muster::cuda {
namespace {

// Checks that all values are written, and compares a few thousand of them with the expected values.
// Returns what is wrong, or "".
std::string WhatIsWrong(const BenchDevice& device, const KernelCase& kernel) {
  if (kernel.prepare) {
    kernel.prepare();
  } else {
    device.Poison(kernel.output, kernel.output_bytes);
  }
  kernel.run();
  device.Wait();
  const std::vector<float> got = kernel.result();
  const auto count = static_cast<int64_t>(got.size());
  constexpr int64_t kAtEnds = 1000, kBetween = 3001;
  const int64_t step = std::max<int64_t>(1, count / kBetween);
  for (int64_t i = 0; i < count; ++i) {
    const double number = got[static_cast<size_t>(i)];
    const bool compared = i < kAtEnds || i >= count - kAtEnds || i % step == 0;
    const double expected = compared ? kernel.expected(i) : 0;
    const double most = kernel.tolerance * std::max(1.0, std::abs(expected));
    // Written so that a NaN fails.
    if (std::isfinite(number) && (!compared || std::abs(number - expected) <= most)) continue;
    return fmt::format("value {} of {}: expected {:.9g}, got {:.9g}", i, count,
                       compared ? expected : kernel.expected(i), number);
  }
  return "";
}

class Bench {
 public:
  explicit Bench(const KernelOptions& options) : options_(options) {}

  template <typename T>
  void Run(const char* type) {
    // Making the cases takes seconds of the host.
    if (!options_.type.empty() && options_.type != type) return;
    const UseCase use = [this, type](const KernelCase& kernel) { Row(type, kernel); };
    for (const auto cases : {ElementwiseCases<T>, PoolCases<T>, NormCases<T>, RowCases<T>,
                             ConvolutionCases<T>, ImageCases<T>}) {
      cases(device_, options_.sizes, use);
      device_.FreeAll();
      if (options_.exact && rows_ > 0) return;
    }
  }
  int rows() const { return rows_; }
  int wrong() const { return wrong_; }

 private:
  void Row(const char* type, const KernelCase& kernel) {
    const bool wanted = options_.exact ? kernel.name == options_.only
                                       : kernel.name.find(options_.only) != std::string::npos;
    if (!wanted) return;
    ++rows_;
    try {
      Measure(type, kernel);
    } catch (const Error& error) {
      ++wrong_;
      fmt::print("| {} | {} | FAILED: {} |\n", kernel.name, type, error.what());
    }
    (void)std::fflush(stdout);
  }

  void Measure(const char* type, const KernelCase& kernel) {
    if (const std::string wrong = WhatIsWrong(device_, kernel); !wrong.empty()) {
      ++wrong_;
      fmt::print("| {} | {} | WRONG: {} |\n", kernel.name, type, wrong);
      return;
    }
    const double seconds = device_.MedianSeconds(kernel.run, options_.repeats);
    // A copy both reads and writes, so half as many bytes cause the same traffic.
    const auto half = static_cast<size_t>(std::max<int64_t>(1, kernel.bytes / 2));
    copies_.FreeAll();
    auto* const from = copies_.Allocate<std::byte>(static_cast<int64_t>(half));
    auto* const to = copies_.Allocate<std::byte>(static_cast<int64_t>(half));
    copies_.Poison(from, half);
    const double copy =
        copies_.MedianSeconds([&] { copies_.Copy(to, from, half); }, options_.repeats);
    const auto rate = [&](double time) { return static_cast<double>(kernel.bytes) / time * 1e-9; };
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.0f} | {:.0f} | {:.2f} |\n", kernel.name, type,
               static_cast<double>(kernel.bytes) * 1e-6, seconds * 1e6, rate(seconds), rate(copy),
               copy / seconds);
  }

  const KernelOptions options_;
  BenchDevice device_, copies_;
  int rows_ = 0, wrong_ = 0;
};

}  // namespace

void BenchKernels(const KernelOptions& options) {
  Bench bench(options);
  fmt::print(
      "| kernel | type | MB moved | median µs | GB/s | a copy's GB/s | share |\n"
      "|---|---|---|---|---|---|---|\n");
  bench.Run<float>("FP32");
  bench.Run<Bf16>("BF16");
  if (bench.rows() == 0) {
    throw Error(ExitCode::kUsage, "{}: no kernel {}\"{}\"", options.exact ? "--exactly" : "--only",
                options.exact ? "is named " : "has a name with ", options.only);
  }
  if (bench.wrong() > 0) {
    throw Error(ExitCode::kFailure, "{} of {} kernels are wrong", bench.wrong(), bench.rows());
  }
  fmt::print("{} kernels; all results match plain loops\n", bench.rows());
}

}  // namespace muster::cuda
