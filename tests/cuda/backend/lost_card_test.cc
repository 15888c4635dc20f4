// A GPU is lost during a run. The run continues and ends with the bits of an undisturbed run.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "tests/cli/text/unwrapped.h"
#include "tests/cuda/backend/card_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LostCard : public CardJob {
 protected:
  ~LostCard() override { ::unsetenv("MUSTER_SOFTWARE_GPU"); }

  static constexpr int kLost = 1;
  std::vector<std::string> Settings(const char* on_lost) const {
    return {"worker.devices=auto:2",
            "worker.soft_placement=false",
            "run.steps=20",
            "run.global_batch=10",
            "evaluation.every_epochs=0",
            std::string("cluster.on_lost_worker=") + on_lost};
  }
  std::string UndisturbedHash() {
    Cards(2);
    const Outcome outcome = Launch(Settings("ABORT"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.log;
    return outcome.hash();
  }
  // Runs the job on two of `cards` GPUs. Rank 1 loses its GPU.
  void RunAndLose(int cards, const char* on_lost) {
    Cards(cards);
    const std::string file = Path("lost");
    ::setenv("MUSTER_SOFTWARE_GPU", ("delay_us=5000,lost_card_file=" + file).c_str(), 1);
    const auto job = Start("run", Settings(on_lost));
    ASSERT_TRUE(Reaches("run", 3)) << job->Log();
    Cards(cards, kLost);
    std::ofstream(file + ".next") << Uuid(kLost);
    std::filesystem::rename(file + ".next", file);
    EXPECT_EQ(job->Wait(120), 0) << job->Log();
    log_ = Unwrapped(job->Log());
    EXPECT_TRUE(NothingLeft(5));
  }

  // The call that fails first decides.
  ::testing::Matcher<std::string> NamesTheCause() const {
    return AnyOf(HasSubstr("this worker's GPU (" + Uuid(kLost) + ") cannot"),
                 HasSubstr("cannot start a kernel: cudaErrorDevicesUnavailable"));
  }

  std::string log_;
};

TEST_F(LostCard, TheReplacementTakesAnotherCard) {
  const std::string hash = UndisturbedHash();
  RunAndLose(3, "REPLACE");
  EXPECT_EQ(Metrics("run").back()["weights_hash"].get<std::string>(), hash);
  EXPECT_THAT(log_, AllOf(HasSubstr("worker lost"), NamesTheCause(),
                          HasSubstr(": rank 1 continues on GPU 2 (GPU-00020000")));
}

TEST_F(LostCard, TheOthersDoItsWork) {
  const std::string hash = UndisturbedHash();
  RunAndLose(3, "CONTINUE");
  EXPECT_EQ(Metrics("run").back()["weights_hash"].get<std::string>(), hash);
  EXPECT_THAT(log_,
              AllOf(HasSubstr("worker lost"), NamesTheCause(), Not(HasSubstr("continues on"))));
}

}  // namespace
}  // namespace muster::testing
