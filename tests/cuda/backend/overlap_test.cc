// A GPU worker computes while its chunks travel (tests/job/overlap.h): copy streams transfer
// weights and gradients chunk by chunk while the compute stream is in the middle of a pass.
#include "tests/job/overlap.h"

#include "tests/cuda/software_gpu/control.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace muster::testing {
namespace {

class CudaOverlap : public OverlapTest {
 protected:
  void SetUp() override { software_gpu::Reset({}); }
  void TearDown() override {
    EXPECT_TRUE(software_gpu::Leaks().empty()) << software_gpu::Leaks().front();
    software_gpu::Reset({});
  }
  std::unique_ptr<Backend> MakeBackend() override { return cuda::MakeCudaWorker({}).backend; }
  // The compute stream is the first one that the backend creates.
  void OnDevice(std::function<void()> work) override {
    software_gpu::QueueWork(0, std::move(work));
  }
};

TEST_P(CudaOverlap, ForwardBeginsBeforeTheLastChunksArrive) {
  ForwardBeginsBeforeTheLastChunksArrive();
}
TEST_P(CudaOverlap, GradientsArriveWhileBackwardGoesOn) { GradientsArriveWhileBackwardGoesOn(); }

INSTANTIATE_TEST_SUITE_P(All, CudaOverlap, OverlapCases(), OverlapName);

}  // namespace
}  // namespace muster::testing
