// Whole trainings whose workers compute on the software GPU: real processes, which load the plugin
// as they load that of a card.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CudaJob : public RealJob {
 protected:
  Outcome OnCards(std::vector<std::string> settings) {
    settings.insert(settings.begin(), {"worker.backend=CUDA", "worker.soft_placement=false"});
    return Launch(settings);
  }
  std::string HashOf(const std::vector<std::string>& settings) {
    const Outcome outcome = OnCards(settings);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.log;
    EXPECT_EQ(outcome.hash().size(), 16u);
    return outcome.hash();
  }
};

// The bits depend on the slices, the precision and the way of the convolutions alone.
TEST_F(CudaJob, HasTheSameBitsOnAnyNumberOfWorkersOverAnyTransport) {
  const std::string hash = HashOf({"cluster.workers=1"});
  EXPECT_EQ(HashOf({"cluster.workers=2"}), hash);
  EXPECT_EQ(HashOf({"cluster.workers=4"}), hash);
  EXPECT_EQ(HashOf({"cluster.workers=2", "cluster.transport=TCP"}), hash);
  EXPECT_EQ(HashOf({"cluster.workers=2", "cluster.transport=IPC"}), hash);
  EXPECT_NE(HashOf({"cluster.workers=2", "worker.precision=BF16"}), hash);
}

TEST_F(CudaJob, LearnsWhatTheCpuLearns) {
  const Outcome cpu = Launch({}), card = OnCards({});
  ASSERT_EQ(cpu.exit_code, 0) << cpu.log;
  ASSERT_EQ(card.exit_code, 0) << card.log;
  EXPECT_NE(card.hash(), cpu.hash());
  EXPECT_NEAR(card.metrics.back()["test_loss"].get<double>(),
              cpu.metrics.back()["test_loss"].get<double>(), 1e-3);
}

TEST_F(CudaJob, ReadOnlyWeightsTravelWhereTheyCannotBeRegistered) {
  const std::string hash = HashOf({"cluster.workers=2"});
  ::setenv("MUSTER_SOFTWARE_GPU", "read_only_registration=0", 1);
  EXPECT_EQ(HashOf({"cluster.workers=2"}), hash);
  ::unsetenv("MUSTER_SOFTWARE_GPU");
}

TEST_F(CudaJob, WithoutACardALineSaysSo) {
  ::setenv("MUSTER_SOFTWARE_GPU", "devices=0", 1);
  const Outcome hard = OnCards({});
  EXPECT_EQ(hard.exit_code, 1);
  EXPECT_THAT(hard.log, HasSubstr("there is no card that CUDA can use"));
  // With soft placement the same job runs, and says on what.
  const Outcome soft = Launch({"worker.backend=CUDA"});
  EXPECT_EQ(soft.exit_code, 0) << soft.log;
  ::unsetenv("MUSTER_SOFTWARE_GPU");
}

// A run that began on the CPU goes on on a card: the state is the same, the rounding is another.
TEST_F(CudaJob, TakesUpWhatTheCpuBegan) {
  const Outcome begun = Launch({"run.steps=10", "checkpoint.every_steps=5"});
  ASSERT_EQ(begun.exit_code, 0) << begun.log;
  const Outcome on = Muster({"launch", "--resume", Path("run0"), "--set", "run.steps=20", "--set",
                             "worker.backend=CUDA", "--set", "worker.soft_placement=false"},
                            "run0");
  EXPECT_EQ(on.exit_code, 0) << on.log;
  EXPECT_EQ(on.metrics.back()["step"].get<int>(), 20);
}

}  // namespace
}  // namespace muster::testing
