// Which slice ends its workers, and which workers merely ended together.
#include "ps/lost_work.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using Clock = LostWork::Clock;

constexpr int64_t kSlices = 4;

Lease Of(uint32_t slice, bool again) {
  Lease lease;
  lease.node = {0, slice};
  lease.again = again;
  return lease;
}

class LostWorkTest : public ::testing::Test {
 protected:
  LostWorkTest() { work_.BeginStep(); }

  // A worker that had a slice of its own, and others that were not done yet, is lost.
  std::optional<int64_t> Lose(const std::vector<Lease>& leases) {
    return work_.OnLost(
        leases, kSlices, [](int64_t) { return true; }, now_);
  }
  bool HeldBack(int64_t slice) const { return work_.HeldBackUntil(slice, now_).has_value(); }

  LostWork work_;
  Clock::time_point now_ = Clock::now();
};

TEST_F(LostWorkTest, ASliceThatEndsThreeWorkersIsFound) {
  EXPECT_EQ(Lose({Of(2, false)}), std::nullopt);
  EXPECT_FALSE(HeldBack(2)) << "one worker was lost, as may happen: nobody waits";
  EXPECT_EQ(Lose({Of(2, true), Of(0, false)}), std::nullopt);
  EXPECT_TRUE(HeldBack(2));
  now_ += LostWork::kHoldBack;
  EXPECT_FALSE(HeldBack(2));
  EXPECT_FALSE(HeldBack(0)) << "it was at another one";
  EXPECT_EQ(Lose({Of(2, true), Of(1, false)}), 2);
}

// Four workers that are killed at once, and noticed one after the other: what the first one left is
// given to the second, and what that one left to the third.
TEST_F(LostWorkTest, NoSliceIsToBlameForWorkersThatEndTogether) {
  std::vector<Lease> has{Of(0, false), Of(1, false), Of(2, false), Of(3, false)};
  std::vector<std::vector<Lease>> workers;
  for (const Lease& lease : has) workers.push_back({lease});
  for (size_t lost = 0; lost < workers.size(); ++lost) {
    EXPECT_EQ(Lose(workers[lost]), std::nullopt) << "worker " << lost;
    now_ += std::chrono::milliseconds(20);
    if (lost + 1 == workers.size()) break;
    for (const Lease& lease : workers[lost]) {  // all that it had, to the next one
      if (HeldBack(lease.node.index)) continue;
      workers[lost + 1].insert(workers[lost + 1].begin(), Of(lease.node.index, true));
    }
  }
}

TEST_F(LostWorkTest, AnotherStepBeginsAnew) {
  EXPECT_EQ(Lose({Of(2, false)}), std::nullopt);
  EXPECT_EQ(Lose({Of(2, true)}), std::nullopt);
  work_.BeginStep();
  EXPECT_FALSE(HeldBack(2));
  EXPECT_EQ(Lose({Of(2, false)}), std::nullopt);
}

}  // namespace
}  // namespace muster
