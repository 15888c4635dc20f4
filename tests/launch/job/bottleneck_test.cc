// What is said to limit a run, from constructed numbers.
#include "launch/job/bottleneck.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

struct RankTimes {
  double compute_ms, input_ms;
};

struct Shares {
  double overhead, input, imbalance;
};

events::Summary Summary(double step_ms, const Shares& shares, const std::vector<RankTimes>& ranks) {
  events::Summary summary;
  events::Measured& measured = *summary.mutable_measured();
  measured.set_step_ms(step_ms);
  measured.mutable_shares()->set_overhead(shares.overhead);
  measured.mutable_shares()->set_input(shares.input);
  measured.mutable_shares()->set_imbalance(shares.imbalance);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    events::Summary::Rank& one = *summary.add_ranks();
    one.set_rank(static_cast<uint32_t>(rank));
    one.mutable_parts()->set_compute_ms(ranks[rank].compute_ms);
    one.mutable_parts()->set_input_ms(ranks[rank].input_ms);
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

// Advice for CPUs does not help a job on GPUs.
TEST(BottleneckTest, OnGpus) {
  const auto compute = Bottleneck(Summary(100, {0.08, 0.01, 0.005}, {{92, 1}, {91, 1}}), true);
  ASSERT_THAT(compute, SizeIs(1));
  EXPECT_THAT(compute[0].text,
              AllOf(HasSubstr("more GPUs (--workers)"), HasSubstr("worker.precision"),
                    Not(HasSubstr("threads")), Not(HasSubstr("cores"))));
  const auto slow = Bottleneck(Summary(100, {0.02, 0, 0.66}, {{8, 0}, {8, 0}, {98, 0}}), true);
  ASSERT_THAT(slow, SizeIs(1));
  EXPECT_THAT(slow[0].text, HasSubstr("GPU"));
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
  EXPECT_THAT(Bottleneck({}), IsEmpty());
  EXPECT_THAT(Bottleneck(Summary(0, {0, 0, 0}, {{1, 1}})), IsEmpty());
  const events::Summary summary = Summary(100, {0, 0, 0}, {{1, 1}});
  EXPECT_THAT(Bottleneck(summary), SizeIs(1));
  const auto without = [&](auto clear) {
    events::Summary less = summary;
    clear(less);
    return Bottleneck(less);
  };
  using S = events::Summary;
  EXPECT_THAT(without([](S& s) { s.mutable_measured()->clear_step_ms(); }), IsEmpty());
  EXPECT_THAT(without([](S& s) { s.mutable_measured()->clear_shares(); }), IsEmpty());
  EXPECT_THAT(without([](S& s) { s.mutable_measured()->mutable_shares()->clear_overhead(); }),
              IsEmpty());
  EXPECT_THAT(without([](S& s) { s.mutable_measured()->mutable_shares()->clear_input(); }),
              IsEmpty());
  EXPECT_THAT(without([](S& s) { s.mutable_measured()->mutable_shares()->clear_imbalance(); }),
              IsEmpty());
  EXPECT_THAT(without([](S& s) { s.clear_ranks(); }), IsEmpty());
  EXPECT_THAT(without([](S& s) { s.mutable_ranks(0)->clear_parts(); }), IsEmpty());
}

}  // namespace
}  // namespace muster
