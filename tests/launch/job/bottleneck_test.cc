// What is said to limit a run, from constructed numbers.
#include "launch/job/bottleneck.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

struct Shares {
  double overhead, input, imbalance;
};

nlohmann::json Summary(double step_ms, const Shares& shares, const std::vector<RankTimes>& ranks) {
  nlohmann::json summary{{"step_ms", step_ms},
                         {"overhead_share", shares.overhead},
                         {"input_share", shares.input},
                         {"imbalance_share", shares.imbalance},
                         {"ranks", nlohmann::json::array()}};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    summary["ranks"].push_back({{"rank", rank},
                                {"compute_ms", ranks[rank].compute_ms},
                                {"input_ms", ranks[rank].input_ms}});
  }
  return summary;
}

TEST(BottleneckTest, ComputeAlone) {
  const auto rows = Bottleneck(Summary(100, {0.08, 0.01, 0.005}, {{92, 1}, {91, 1}}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].label, "limit");
  EXPECT_THAT(rows[0].text,
              AllOf(StartsWith("compute: 92 % of a step's 100 ms"), HasSubstr("worker.threads")));
}

TEST(BottleneckTest, ComputeAndThenSomethingElse) {
  const auto rows = Bottleneck(Summary(100, {0.3, 0.01, 0}, {{70, 1}, {70, 1}}));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_THAT(rows[0].text, StartsWith("compute: 70 %"));
  EXPECT_EQ(rows[1].label, "then");
  EXPECT_THAT(rows[1].text, StartsWith("server and communication: 29 % of a step's 100 ms"));
}

TEST(BottleneckTest, TheInputPipeline) {
  const auto rows = Bottleneck(Summary(100, {0.7, 0.65, 0}, {{30, 10}, {30, 65}}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_THAT(rows[0].text, AllOf(StartsWith("input pipeline: 65 % of a step's 100 ms"),
                                  HasSubstr("rank 1"), HasSubstr("data.prefetch_threads")));
}

TEST(BottleneckTest, ServerAndCommunication) {
  const auto rows = Bottleneck(Summary(50, {0.76, 0.01, 0.02}, {{10, 0.5}, {12, 0.5}}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_THAT(rows[0].text, AllOf(StartsWith("server and communication: 75 % of a step's 50.0"),
                                  HasSubstr("server.threads")));
}

TEST(BottleneckTest, OneRankThatIsSlow) {
  const auto rows = Bottleneck(Summary(102, {0.02, 0.01, 0.39}, {{40, 0}, {40, 0}, {100, 1}}));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_THAT(rows[0].text, StartsWith("compute: 59 %"));
  EXPECT_THAT(rows[1].text,
              AllOf(StartsWith("slowest rank: 39 % of a step's 102 ms"),
                    HasSubstr("rank 2 computes for 100 ms, the mean of all is 60.0")));
}

TEST(BottleneckTest, ASlowRankCanBeTheLimit) {
  const auto rows = Bottleneck(Summary(100, {0.02, 0, 0.66}, {{8, 0}, {8, 0}, {8, 0}, {98, 0}}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].label, "limit");
  EXPECT_THAT(rows[0].text, AllOf(StartsWith("slowest rank: 66 %"), HasSubstr("rank 3")));
}

TEST(BottleneckTest, RanksThatAreLateInTurns) {
  const auto rows = Bottleneck(Summary(100, {0.05, 0.01, 0.25}, {{70, 0}, {71, 0}}));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_THAT(rows[1].text,
              AllOf(StartsWith("slowest rank: 25 %"), HasSubstr("now one rank is late")));
}

TEST(BottleneckTest, OneWorkerHasNoSlowest) {
  const auto rows = Bottleneck(Summary(100, {0.03, 0, 0}, {{97, 0}}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_THAT(rows[0].text, StartsWith("compute: 97 %"));
}

TEST(BottleneckTest, NothingIsSaidWithoutNumbers) {
  EXPECT_THAT(Bottleneck(nullptr), IsEmpty());
  EXPECT_THAT(Bottleneck({{"step_ms", 100}}), IsEmpty());
  EXPECT_THAT(Bottleneck(Summary(0, {0, 0, 0}, {{1, 1}})), IsEmpty());
  nlohmann::json summary = Summary(100, {0, 0, 0}, {{1, 1}});
  EXPECT_THAT(Bottleneck(summary), SizeIs(1));
  for (const char* key : {"step_ms", "overhead_share", "input_share", "imbalance_share", "ranks"}) {
    nlohmann::json without = summary;
    without.erase(key);
    EXPECT_THAT(Bottleneck(without), IsEmpty()) << key;
  }
  summary["ranks"] = {{{"rank", 0}}};
  EXPECT_THAT(Bottleneck(summary), IsEmpty());
  summary["ranks"] = "two";
  EXPECT_THAT(Bottleneck(summary), IsEmpty());
}

}  // namespace
}  // namespace muster
