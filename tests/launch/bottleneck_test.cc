// What is said to limit a run, from constructed numbers.
#include "launch/bottleneck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

struct RankTimes {
  double compute_ms, input_ms;
};

nlohmann::json Summary(double step_ms, const std::vector<RankTimes>& ranks) {
  nlohmann::json summary{{"step_ms", step_ms}, {"ranks", nlohmann::json::array()}};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    summary["ranks"].push_back({{"rank", rank},
                                {"compute_ms", ranks[rank].compute_ms},
                                {"input_ms", ranks[rank].input_ms}});
  }
  return summary;
}

TEST(BottleneckTest, ComputeAlone) {
  const auto rows = Bottleneck(Summary(100, {{92, 1}, {91, 1}}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].label, "limit");
  EXPECT_THAT(rows[0].text, AllOf(StartsWith("compute: 91.5 ms of a step's 100 ms (92 %)"),
                                  HasSubstr("worker.threads")));
}

TEST(BottleneckTest, ComputeAndThenSomethingElse) {
  const auto rows = Bottleneck(Summary(100, {{70, 1}, {70, 1}}));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_THAT(rows[0].text, StartsWith("compute: 70.0 ms"));
  EXPECT_EQ(rows[1].label, "then");
  EXPECT_THAT(rows[1].text, StartsWith("server and communication: 29.0 ms of a step's 100 ms"));
}

TEST(BottleneckTest, TheInputPipeline) {
  const auto rows = Bottleneck(Summary(100, {{30, 10}, {30, 65}}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_THAT(rows[0].text, AllOf(StartsWith("input pipeline: 65.0 ms of a step's 100 ms (65 %)"),
                                  HasSubstr("rank 1"), HasSubstr("data.prefetch_threads")));
}

TEST(BottleneckTest, ServerAndCommunication) {
  const auto rows = Bottleneck(Summary(50, {{10, 0.5}, {12, 0.5}}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_THAT(rows[0].text, AllOf(StartsWith("server and communication: 37.5 ms of a step's 50.0"),
                                  HasSubstr("server.threads")));
}

TEST(BottleneckTest, TheSlowestRank) {
  const auto rows = Bottleneck(Summary(102, {{40, 0}, {40, 0}, {100, 1}}));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_THAT(rows[0].text, StartsWith("compute: 60.0 ms"));
  EXPECT_THAT(rows[1].text, AllOf(StartsWith("slowest rank: 40.0 ms"), HasSubstr("rank 2"),
                                  HasSubstr("computes for 100 ms, the mean of all is 60.0 ms")));
}

TEST(BottleneckTest, RanksThatAreLateInTurns) {
  nlohmann::json summary = Summary(100, {{70, 0}, {70, 0}});
  summary["slowest_ms"] = 95;
  const auto rows = Bottleneck(summary);
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_THAT(rows[1].text, StartsWith("uneven steps: 25.0 ms"));
}

TEST(BottleneckTest, OneWorkerHasNoSlowest) {
  const auto rows = Bottleneck(Summary(100, {{97, 0}}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_THAT(rows[0].text, StartsWith("compute: 97.0 ms"));
}

TEST(BottleneckTest, NothingIsSaidWithoutNumbers) {
  EXPECT_THAT(Bottleneck(nullptr), IsEmpty());
  EXPECT_THAT(Bottleneck({{"step_ms", 100}}), IsEmpty());
  EXPECT_THAT(Bottleneck(Summary(0, {{1, 1}})), IsEmpty());
  EXPECT_THAT(Bottleneck({{"step_ms", 100}, {"ranks", {{{"rank", 0}}}}}), IsEmpty());
  EXPECT_THAT(Bottleneck({{"step_ms", 100}, {"ranks", "two"}}), IsEmpty());
}

}  // namespace
}  // namespace muster
