// The bottleneck that is reported for given numbers.
#include "cli/job/bottleneck.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
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

TEST(BottleneckTest, ThePartThatTakesMost) {
  EXPECT_THAT(Bottleneck(Summary(100, {0.08, 0.01, 0.005}, {{92, 1}, {91, 1}})),
              AllOf(StartsWith("compute: "), HasSubstr("worker.threads")));
  EXPECT_THAT(Bottleneck(Summary(100, {0.3, 0.01, 0}, {{70, 1}, {70, 1}})),
              StartsWith("compute: "));
  EXPECT_THAT(Bottleneck(Summary(100, {0.7, 0.65, 0}, {{30, 10}, {30, 65}})),
              AllOf(StartsWith("input pipeline: "), HasSubstr("rank 1"),
                    HasSubstr("data.prefetch_threads")));
  EXPECT_THAT(Bottleneck(Summary(50, {0.76, 0.01, 0.02}, {{10, 0.5}, {12, 0.5}})),
              AllOf(StartsWith("server and communication: "), HasSubstr("server.threads")));
  EXPECT_THAT(Bottleneck(Summary(100, {0.02, 0, 0.66}, {{8, 0}, {8, 0}, {8, 0}, {98, 0}})),
              AllOf(StartsWith("slowest rank: "),
                    HasSubstr("rank 3 computes for 98.0 ms per step (mean of all ranks: 30.5")));
  EXPECT_THAT(Bottleneck(Summary(100, {0.05, 0.01, 0.55}, {{40, 0}, {41, 0}})),
              AllOf(StartsWith("slowest rank: "), HasSubstr("the slowest rank varies")));
  EXPECT_THAT(Bottleneck(Summary(100, {0.03, 0, 0}, {{97, 0}})), StartsWith("compute: "));
}

TEST(BottleneckTest, CpusThatComputeFasterInBf16) {
  const auto summary = Summary(100, {0.08, 0.01, 0.005}, {{92, 1}, {91, 1}});
  EXPECT_THAT(Bottleneck(summary), Not(HasSubstr("BF16")));
  EXPECT_THAT(Bottleneck(summary, false, "", true), HasSubstr("worker.precision=BF16"));
}

// Advice about CPUs does not apply to a job on GPUs.
TEST(BottleneckTest, OnGpus) {
  EXPECT_THAT(Bottleneck(Summary(100, {0.08, 0.01, 0.005}, {{92, 1}, {91, 1}}), true),
              AllOf(HasSubstr("more GPUs (--workers)"), HasSubstr("worker.precision"),
                    Not(HasSubstr("threads")), Not(HasSubstr("cores"))));
  EXPECT_THAT(Bottleneck(Summary(100, {0.02, 0, 0.66}, {{8, 0}, {8, 0}, {98, 0}}), true),
              HasSubstr("GPU"));
}

// Otherwise the server would be blamed for waiting.
TEST(BottleneckTest, WorkersThatShareCores) {
  EXPECT_EQ(CrowdText(4, 1, 2), "4 workers share 2 cores: use --workers 2");
  EXPECT_EQ(CrowdText(2, 4, 1), "2 workers share 1 core: use --workers 1");
  EXPECT_EQ(CrowdText(2, 4, 6),
            "2 workers with 4 threads each share 6 cores: use --set worker.threads=3");
  EXPECT_THAT(CrowdText(2, 3, 6), IsEmpty());
  EXPECT_THAT(CrowdText(1, 8, 2), IsEmpty());
  const events::Summary summary = Summary(50, {0.76, 0.01, 0.02}, {{10, 0.5}, {12, 0.5}});
  EXPECT_EQ(Bottleneck(summary, false, CrowdText(4, 1, 2)),
            "cores: 4 workers share 2 cores: use --workers 2");
  EXPECT_THAT(Bottleneck(summary, true, CrowdText(4, 1, 2)), StartsWith("server and"));
  EXPECT_THAT(Bottleneck({}, false, CrowdText(4, 1, 2)), IsEmpty());
}

TEST(BottleneckTest, NothingIsSaidWithoutNumbers) {
  EXPECT_THAT(Bottleneck({}), IsEmpty());
  EXPECT_THAT(Bottleneck(Summary(0, {0, 0, 0}, {{1, 1}})), IsEmpty());
  const events::Summary summary = Summary(100, {0, 0, 0}, {{1, 1}});
  EXPECT_THAT(Bottleneck(summary), Not(IsEmpty()));
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
