// If shared memory cannot be passed on, the job runs over ZeroMQ with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/paths.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Fallback : public HandJob, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (!kCanPreload) GTEST_SKIP() << "LD_PRELOAD does not work with a sanitizer's runtime";
  }
  static ProcessOptions Fault() {
    return {.environment = {{"LD_PRELOAD", FaultsLibrary()}, {"MUSTER_FAULT", GetParam()}}};
  }
};

TEST_P(Fallback, ALaunchGoesOn) {
  Process launch({"muster", "launch", Path("config.txtpb"), "--run-dir", Path("run")},
                 Path("launch.log"), Fault());
  EXPECT_EQ(launch.Wait(60), 0) << launch.Log();
  for (const char* file : {"run/worker-0.log", "run/worker-1.log"}) {
    EXPECT_THAT(Slurp(Path(file)),
                AllOf(HasSubstr("falling back to ZeroMQ: shared memory unavailable"),
                      HasSubstr("over ZeroMQ")));
  }
  EXPECT_THAT(
      Slurp(Path("run/server.log")),
      AllOf(HasSubstr("rank 0"), HasSubstr("shared memory failed"), Not(HasSubstr("lost"))));
  ASSERT_FALSE(Metrics("run").empty());
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// Only one of two workers falls back. The other one uses shared memory.
TEST_P(Fallback, AWorkerByHandGoesOn) {
  const auto server = Server({"--token-file", TokenFile()});
  const std::string endpoint = Endpoint(*server);
  const auto first = Worker(0, endpoint);
  const auto second = Worker(1, endpoint, {}, Fault());
  ExpectSuccess(first, second, server);
  EXPECT_THAT(first->Log(), HasSubstr("over shared memory"));
  EXPECT_THAT(second->Log(), HasSubstr("over ZeroMQ"));
  ASSERT_FALSE(Metrics("run").empty());
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// A job that requests shared memory does not fall back. It reports the reason.
TEST_P(Fallback, LocalSaysWhyItFails) {
  Process launch({"muster", "launch", Path("config.txtpb"), "--run-dir", Path("run"), "--set",
                  "cluster.transport=LOCAL"},
                 Path("launch.log"), Fault());
  EXPECT_EQ(launch.Wait(60), 1) << launch.Log();
  EXPECT_THAT(launch.Log(),
              HasSubstr(std::string(GetParam()) == "map" ? "cannot map"
                                                         : "could not receive the shared memory"));
}

INSTANTIATE_TEST_SUITE_P(Faults, Fallback, ::testing::Values("map", "receive"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace muster::testing
