// Benchmarks the parts of the CUDA backend separately. Results are verified before they are
// printed.
//
//   gpu_bench kernels       # Muster's own kernels: GB/s, compared with a copy of as many bytes
//   gpu_bench cudnn         # convolutions by cuDNN: status, speed, and whether bits repeat
//   gpu_bench cudnn-device  # cuDNN's description of the GPU, in JSON
//   gpu_bench launches      # the cost of calls for the host
//
// The loader must find cuBLAS and, for `cudnn`, cuDNN.
#include <fmt/core.h>

#include <string>

#include "bench/gpu/cudnn_table.h"
#include "bench/gpu/kernel_case.h"
#include "bench/gpu/launch_costs.h"
#include "common/base/error.h"
#include "common/base/program_options.h"

namespace {

struct Options {
  std::string what;
  muster::cuda::KernelOptions kernels;
  int64_t batch = 0, side = 32, repeats = 11;
};

void Run(const Options& options) {
  using namespace muster::cuda;
  if (options.what == "launches") return PrintLaunchCosts(100 * static_cast<int>(options.repeats));
  if (options.what == "cudnn-device") return PrintCudnnDevice();
  if (options.what == "cudnn") {
    return PrintCudnnTable({.batch = static_cast<int>(options.batch),
                            .repeats = static_cast<int>(options.repeats),
                            .only = options.kernels.only});
  }
  KernelOptions kernels = options.kernels;
  kernels.repeats = static_cast<int>(options.repeats);
  kernels.sizes.side = static_cast<int>(options.side);
  if (options.batch > 0) kernels.sizes.batch = static_cast<int>(options.batch);
  BenchKernels(kernels);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  muster::ProgramOptions program("Benchmarks the parts of the CUDA backend.");
  program.Add("what", options.what, "kernels, cudnn, cudnn-device or launches")
      .Required()
      .OneOf({"kernels", "cudnn", "cudnn-device", "launches"});
  program.Add("--only", options.kernels.only, "only kernels or shapes whose names contain this");
  std::string exactly;
  program.Add("--exactly", exactly, "kernels: only the one with this name");
  program.Add("--type", options.kernels.type, "kernels: only those of this type")
      .OneOf({"FP32", "BF16"});
  program.Add("--batch", options.batch, "kernels: number of images (default 512); cudnn: maximum")
      .InRange(1, 4096);
  program.Add("--side", options.side, "kernels: height and width of the images")
      .InRange(2, 512)
      .ShowDefault();
  program.Add("--repeats", options.repeats, "number of runs of each")
      .InRange(1, 1000)
      .ShowDefault();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  if (!exactly.empty()) {
    options.kernels.only = exactly;
    options.kernels.exact = true;
  }
  try {
    Run(options);
  } catch (const muster::Error& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
