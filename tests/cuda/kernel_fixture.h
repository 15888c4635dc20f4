// A test that launches a kernel and returns the violations. Only included by .cu files.
#pragma once

#include <string>
#include <vector>

#include "software_gpu/launch.h"
#include "tests/cuda/gpu_fixture.h"

namespace muster::software_gpu {

class KernelTest : public GpuTest {
 protected:
  // Launches the kernel, waits, and returns the violations.
  template <typename... Params, typename... Args>
  std::vector<std::string> Violations(void (*kernel)(Params...), dim3 grid, dim3 block,
                                      Args... args) {
    ViolationRecorder recorder;
    EXPECT_EQ(LaunchKernel(kernel, grid, block, 0, stream_, args...), cudaSuccess);
    cudaStreamSynchronize(stream_);
    ForgetFailure();
    return recorder.Take();
  }
};

}  // namespace muster::software_gpu
