#include <gtest/gtest.h>

#include "tests/cuda/software_gpu/control.h"
#include "tests/nn/host_facing.h"
#include "tests/nn/test_backend.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace muster {
namespace {

// Shared by all tests of the program, so that each need not allocate the GPU's buffers.
class OneCard : public ::testing::Environment {
 public:
  void SetUp() override {
    backend =
        cuda::MakeCudaWorker({.convolution = CudaOptions::Convolution::MUSTER_TEST_CONVOLUTION,
                              .columns_bytes = MUSTER_TEST_COLUMNS_BYTES})
            .backend;
  }
  void TearDown() override {
    backend.reset();
    EXPECT_TRUE(software_gpu::Leaks().empty()) << software_gpu::Leaks().front();
  }

  std::shared_ptr<Backend> backend;
};

auto* const card = static_cast<OneCard*>(::testing::AddGlobalTestEnvironment(new OneCard));

}  // namespace

std::unique_ptr<Backend> MakeTestBackend(int) { return MakeHostFacing(card->backend); }

std::vector<int> TestThreads() { return {1}; }

}  // namespace muster
