// A slow worker gets fewer slices than the other one, over every transport. The result has the same
// bits as with equal shares.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "tests/base/paths.h"
#include "tests/cli/text/unwrapped.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using SharesOver = HandJob;

TEST_F(SharesOver, EveryTransportFollowTheRates) {
  if (!kCanPreload) GTEST_SKIP() << "LD_PRELOAD does not work with a sanitizer's runtime";
  const std::vector<std::string> settings{"run.slices=16", "run.epochs=5",
                                          "evaluation.every_epochs=3"};
  const Outcome even = Succeeded(Launch(settings));
  const ProcessOptions slow{
      .environment = {{"LD_PRELOAD", BuildPath("tests/e2e/libe2e_slow_compute.so")},
                      {"MUSTER_SLEEP_US", "1000"},
                      {"MUSTER_SLOW_RANK", "1"},
                      {"MUSTER_SLOW_FACTOR", "3"}}};
  for (const char* transport : {"LOCAL", "TCP"}) {
    Process launch(LaunchWords(Path("config.txtpb"), Path("data"), Path("run"), settings,
                               {"--set", std::string("cluster.transport=") + transport, "--set",
                                "cluster.shares=MEASURED"}),
                   Path("launch.log"), slow);
    EXPECT_EQ(launch.Wait(90), 0) << launch.Log();
    EXPECT_THAT(Unwrapped(launch.Log()),
                AllOf(HasSubstr("Shares from step "), HasSubstr("rank 1 takes "),
                      HasSubstr("shares changed ")))
        << transport;
    const auto metrics = Metrics("run");
    ASSERT_FALSE(metrics.empty());
    const auto change = std::ranges::find_if(metrics, [](const nlohmann::json& line) {
      return line.value("event", "") == "shares_changed";
    });
    ASSERT_NE(change, metrics.end());
    EXPECT_LT((*change)["shares"][1]["slices"], 8) << transport;
    EXPECT_GT((*change)["shares"][0]["slices"], 8) << transport;
    EXPECT_EQ(metrics.back()["weights_hash"], even.hash()) << transport;
    EXPECT_TRUE(NothingLeft(5));
    std::filesystem::remove_all(Path("run"));
  }
}

}  // namespace
}  // namespace muster::testing
