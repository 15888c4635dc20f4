// Gradients of a sum that are sent by themselves: after an order was closed, or if one is late.
// Gradients are kept until the weights that follow from them have arrived.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "tests/relay/hand_sums.h"

namespace muster {
namespace closed_sums_test {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using testing::HandSums;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Workers 1 to 4 have a quarter of eight slices each.
constexpr TreeNode kFirst{1, 0}, kSecond{1, 1}, kThird{1, 2}, kFourth{1, 3};
constexpr TreeNode kQuarters[]{kFirst, kSecond, kThird, kFourth};

class ClosedSums : public ::testing::Test {
 protected:
  ClosedSums() { Order(0); }
  void Order(int64_t step) {
    for (const uint32_t via : {1, 2, 3, 4}) host_.Give(via, {kQuarters[via - 1]}, step);
  }
  void Whole(uint32_t chunk, int64_t step = 0) {
    HandSums::Names sent;
    for (const uint32_t via : {1, 2, 3, 4}) {
      sent = host_.Add(via, kQuarters[via - 1], chunk, step);
    }
    EXPECT_EQ(sent.size(), 1u);
  }

  HandSums host_{8};
};

TEST_F(ClosedSums, WaitingGradientsGoAlone) {
  EXPECT_THAT(host_.Add(3, kThird), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst, 1), IsEmpty());
  EXPECT_THAT(host_.Close(2), ElementsAre("1.0", "1.2", "1.0 of chunk 1"));
  EXPECT_THAT(host_.Add(4, kFourth), ElementsAre("1.3"));
  EXPECT_THAT(host_.Add(3, kThird, 1), ElementsAre("1.2 of chunk 1"));
  EXPECT_THAT(host_.Add(2, kSecond), ElementsAre("1.1")) << "the server drops and counts it";
}

// The server may have closed the order before the sum arrived.
TEST_F(ClosedSums, GradientsInASumThatWasSentGoAloneToo) {
  Whole(0);
  EXPECT_THAT(host_.Add(2, kSecond, 1), IsEmpty());
  EXPECT_THAT(host_.Add(4, kFourth, 1), IsEmpty());
  Whole(2);
  EXPECT_THAT(host_.Close(2), ElementsAre("1.0", "1.2", "1.3", "1.3 of chunk 1", "1.0 of chunk 2",
                                          "1.2 of chunk 2", "1.3 of chunk 2"));
}

TEST_F(ClosedSums, GradientsGoAloneOnlyOnce) {
  Whole(0);
  EXPECT_THAT(host_.Close(2), ElementsAre("1.0", "1.2", "1.3"));
  EXPECT_THAT(host_.Close(2), IsEmpty());
  EXPECT_THAT(host_.Close(3), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst, 1), ElementsAre("1.0 of chunk 1"));
  EXPECT_THAT(host_.Close(4), IsEmpty());
}

TEST_F(ClosedSums, OtherSumsGoOn) {
  HandSums host(8);
  host.Give(1, {{0, 0}});
  host.Give(2, {{0, 1}});
  host.Give(3, {{0, 4}});
  host.Give(4, {{0, 5}});
  EXPECT_THAT(host.Add(1, {0, 0}), IsEmpty());
  EXPECT_THAT(host.Add(3, {0, 4}), IsEmpty());
  EXPECT_THAT(host.Close(2), ElementsAre("0.0"));
  EXPECT_THAT(host.Add(4, {0, 5}), ElementsAre("1.2 = 0.4 + 0.5"));
  EXPECT_THAT(host.Close(7), IsEmpty()) << "it has no orders";
}

// A worker with several subtrees is in several sums, or several times in one.
TEST_F(ClosedSums, AllSumsOfTheWorkerAreClosed) {
  HandSums host(8);
  host.Give(1, {{0, 0}, {0, 4}, {1, 3}});
  host.Give(2, {{0, 1}});
  host.Give(3, {{0, 5}});
  EXPECT_THAT(host.Add(2, {0, 1}), IsEmpty());
  EXPECT_THAT(host.Add(1, {0, 0}), ElementsAre("1.0 = 0.0 + 0.1"));
  EXPECT_THAT(host.Add(1, {0, 4}), IsEmpty());
  EXPECT_THAT(host.Add(3, {0, 5}), IsEmpty());
  EXPECT_THAT(host.Close(1), ElementsAre("0.1", "0.5"));
}

TEST_F(ClosedSums, TheOrdersOfTheNextStepAreForgotten) {
  Order(1);
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  EXPECT_THAT(host_.Close(2), ElementsAre("1.0"));
  EXPECT_THAT(host_.Add(4, kFourth, 0, 1), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst, 0, 1), ElementsAre("1.0")) << "it has no neighbour";
  EXPECT_THAT(host_.Add(3, kThird, 0, 1), ElementsAre("2.1 = 1.2 + 1.3"));
  Order(2);
  Whole(0, 2);
}

TEST_F(ClosedSums, BeforeTheFirstGradientTheOrdersAreForgotten) {
  EXPECT_THAT(host_.Close(2), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst), ElementsAre("1.0"));
  EXPECT_THAT(host_.Add(3, kThird), IsEmpty());
  EXPECT_THAT(host_.Add(4, kFourth), ElementsAre("2.1 = 1.2 + 1.3"));
}

TEST_F(ClosedSums, AChunkWhoseWeightsHaveArrivedIsForgotten) {
  Whole(0);
  Whole(1);
  Order(1);
  Whole(0, 1);
  host_.Forget(0, 0);
  host_.Forget(7, 0);  // of no known step
  host_.Forget(0, 7);
  EXPECT_THAT(host_.Close(1), ElementsAre("1.1 of chunk 1", "1.2 of chunk 1", "1.3 of chunk 1",
                                          "1.1", "1.2", "1.3"));
}

// ------------------------------------------------------------------------------ late workers

TEST_F(ClosedSums, ALateWorkerIsWaitedForHalfASecond) {
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  host_.Advance(milliseconds(300));
  EXPECT_THAT(host_.Add(3, kThird), IsEmpty());
  EXPECT_THAT(host_.Add(3, kThird, 1), IsEmpty());
  host_.Advance(milliseconds(200));
  EXPECT_THAT(host_.TakeLate(), IsEmpty());
  host_.Advance(milliseconds(1));
  EXPECT_THAT(host_.TakeLate(), ElementsAre("1.0", "1.2", "1.2 of chunk 1"));
  EXPECT_THAT(host_.TakeLate(), IsEmpty());
  EXPECT_THAT(host_.Add(2, kSecond), ElementsAre("1.1"));
  EXPECT_THAT(host_.Add(4, kFourth), ElementsAre("1.3"));
  EXPECT_THAT(host_.Add(1, kFirst, 2), ElementsAre("1.0 of chunk 2"));
  EXPECT_THAT(host_.Close(3), IsEmpty());
  Order(1);
  Whole(0, 1);
}

// The usual step takes 4 s after these steps.
TEST_F(ClosedSums, GradientsMayTrickleInForAStepAndAQuarter) {
  Whole(0);
  for (int64_t step = 1; step <= 4; ++step) {
    host_.Advance(milliseconds(4000));
    Order(step);
    Whole(0, step);
  }
  host_.Advance(milliseconds(4000));
  Order(5);
  for (uint32_t chunk = 0; chunk < 8; ++chunk) {
    EXPECT_THAT(host_.Add(1, kFirst, chunk, 5), IsEmpty());
  }
  for (uint32_t chunk = 0; chunk < 5; ++chunk) {
    host_.Advance(milliseconds(1000));
    EXPECT_THAT(host_.TakeLate(), IsEmpty());
    EXPECT_THAT(host_.Add(2, kSecond, chunk, 5), IsEmpty());
    EXPECT_THAT(host_.Add(3, kThird, chunk, 5), IsEmpty());
    EXPECT_THAT(host_.Add(4, kFourth, chunk, 5), SizeIs(1));
  }
  host_.Advance(milliseconds(1));
  EXPECT_THAT(host_.TakeLate(), SizeIs(3)) << "the newest came a moment ago, but the step is over";
}

TEST_F(ClosedSums, ACompleteSumIsNeverLate) {
  Whole(0);
  host_.Advance(milliseconds(5000));
  EXPECT_THAT(host_.TakeLate(), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst, 1), IsEmpty());
  host_.Advance(milliseconds(501));
  EXPECT_THAT(host_.TakeLate(), ElementsAre("1.0 of chunk 1"));
  EXPECT_THAT(host_.Close(4), ElementsAre("1.0", "1.1", "1.2")) << "they are still kept";
}

TEST_F(ClosedSums, LongStepsWaitLonger) {
  // The usual step is at most twice as long as before: 0.5, 1, 2 and then 3 seconds.
  Whole(0);
  for (int64_t step = 1; step <= 3; ++step) {
    host_.Advance(milliseconds(3000));
    Order(step);
    Whole(0, step);
  }
  host_.Advance(milliseconds(3000));
  Order(4);
  EXPECT_THAT(host_.Add(1, kFirst, 0, 4), IsEmpty());
  host_.Advance(milliseconds(750));
  EXPECT_THAT(host_.TakeLate(), IsEmpty());
  host_.Advance(milliseconds(1));
  EXPECT_THAT(host_.TakeLate(), ElementsAre("1.0"));
  // That was a quarter of 3 seconds. The next step follows after 2.4.
  host_.Advance(milliseconds(1649));
  Order(5);
  EXPECT_THAT(host_.Add(4, kFourth, 0, 5), IsEmpty());
  host_.Advance(milliseconds(600));
  EXPECT_THAT(host_.TakeLate(), IsEmpty());
  host_.Advance(milliseconds(1));
  EXPECT_THAT(host_.TakeLate(), ElementsAre("1.3"));
}

TEST_F(ClosedSums, ShortStepsWaitNoLessThanHalfASecond) {
  Whole(0);
  host_.Advance(milliseconds(10));
  Order(1);
  EXPECT_THAT(host_.Add(1, kFirst, 0, 1), IsEmpty());
  host_.Advance(milliseconds(500));
  EXPECT_THAT(host_.TakeLate(), IsEmpty());
  host_.Advance(milliseconds(1));
  EXPECT_THAT(host_.TakeLate(), ElementsAre("1.0"));
}

// ------------------------------------------------------------------------------ memory

class KeptGradients : public ClosedSums {
 protected:
  // Whether the values of this worker's gradient of step 0 are still held.
  std::weak_ptr<const void> AddFirst(uint32_t chunk) {
    RelayedGradient gradient = host_.Gradient(1, kFirst, chunk);
    const std::weak_ptr<const void> values = gradient.payload.owner;
    EXPECT_THAT(host_.Add(std::move(gradient)), IsEmpty());
    return values;
  }
};

TEST_F(KeptGradients, AreReleasedWithTheirChunk) {
  const auto values = AddFirst(0), other = AddFirst(1);
  for (const uint32_t via : {2, 3, 4}) (void)host_.Add(via, kQuarters[via - 1]);
  EXPECT_EQ(values.use_count(), 1);
  host_.Forget(0, 0);
  EXPECT_EQ(values.use_count(), 0);
  EXPECT_EQ(other.use_count(), 1);
}

TEST_F(KeptGradients, AreReleasedTwoStepsLater) {
  const auto values = AddFirst(0);
  Order(1);
  EXPECT_EQ(values.use_count(), 1) << "the step may not have ended";
  host_.Give(1, {kFirst}, 2);
  EXPECT_EQ(values.use_count(), 0);
  EXPECT_THAT(host_.Close(2), IsEmpty());
  EXPECT_THAT(host_.Add(2, kSecond), ElementsAre("1.1")) << "the step is forgotten";
}

TEST_F(KeptGradients, AreReleasedWhenTheyAreSent) {
  const auto values = AddFirst(0);
  EXPECT_EQ(host_.Close(2).size(), 1u);
  EXPECT_EQ(values.use_count(), 1) << "only the sent message has it";
  EXPECT_THAT(host_.Add(2, kSecond), ElementsAre("1.1"));
  EXPECT_EQ(values.use_count(), 0);
}

}  // namespace closed_sums_test
}  // namespace muster
