// Runs the cases of tests/nn on a real GPU, through the plugin that a worker loads. Skips them if
// there is no GPU. MUSTER_CARD_TEST=GEMM runs convolutions without cuDNN.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "common/base/error.h"
#include "tests/nn/host_facing.h"
#include "tests/nn/test_backend.h"
#include "worker/backend/cuda/load_plugin.h"

namespace muster {
namespace {

CudaOptions Wanted() {
  const char* const convolution = std::getenv("MUSTER_CARD_TEST");
  const bool gemm = convolution != nullptr && std::string_view(convolution) == "GEMM";
  return {.convolution = gemm ? CudaOptions::Convolution::kGemm : CudaOptions::Convolution::kAuto};
}

// Shared by all cases.
class TheCard : public ::testing::Environment {
 public:
  void SetUp() override {
    try {
      CudaWorker worker = LoadCudaWorker(Wanted(), CudaLibraryFolders());
      fmt::print("on {}\n", worker.arithmetic);
      backend = std::move(worker.backend);
    } catch (const Error& error) {
      // On a line of its own because scripts/test.sh counts it. GoogleTest would report a pass.
      fmt::print("skipped: {}\n", error.what());
      std::exit(0);
    }
  }
  void TearDown() override { backend.reset(); }

  std::shared_ptr<Backend> backend;
};

auto* const card = static_cast<TheCard*>(::testing::AddGlobalTestEnvironment(new TheCard));

}  // namespace

std::unique_ptr<Backend> MakeTestBackend(int) { return MakeHostFacing(card->backend); }

std::vector<int> TestThreads() { return {1}; }

}  // namespace muster
