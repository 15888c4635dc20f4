// A worker on the CPU computes while its chunks travel (overlap.h).
#include "tests/job/overlap.h"

#include "worker/backend/cpu/cpu_backend.h"

namespace muster::testing {
namespace {

class Overlap : public OverlapTest {
 protected:
  std::unique_ptr<Backend> MakeBackend() override { return MakeCpuBackend(1); }
  void OnDevice(std::function<void()> work) override { work(); }
};

TEST_P(Overlap, ForwardBeginsBeforeTheLastChunksArrive) {
  ForwardBeginsBeforeTheLastChunksArrive();
}
TEST_P(Overlap, GradientsArriveWhileBackwardGoesOn) { GradientsArriveWhileBackwardGoesOn(); }

INSTANTIATE_TEST_SUITE_P(All, Overlap, OverlapCases(), OverlapName);

}  // namespace
}  // namespace muster::testing
