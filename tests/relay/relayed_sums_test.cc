// Another relay connects to this one: its sums and its workers' gradients are parts of this host's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/relay/hand_sums.h"

namespace muster {
namespace relayed_sums_test {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using testing::HandSums;
using ::testing::IsEmpty;

// Workers 1 to 4 have a quarter of eight slices each. Workers 3 and 4 are behind another relay.
constexpr TreeNode kFirst{1, 0}, kSecond{1, 1}, kThird{1, 2}, kFourth{1, 3}, kTheirs{2, 1};

class RelayedSums : public ::testing::Test {
 protected:
  RelayedSums() {
    host_.Give(1, {kFirst});
    host_.Give(2, {kSecond});
    host_.Give(3, {kThird});
    host_.Give(4, {kFourth});
  }
  RelayedGradient Theirs(uint32_t chunk = 0) const {
    return host_.Sum(kTheirs,
                     {host_.Gradient(3, kThird, chunk), host_.Gradient(4, kFourth, chunk)});
  }

  HandSums host_{8};
};

// Each sum has the bits of adding the four gradients directly, see HandSums.
TEST_F(RelayedSums, AreAddedInAnyOrder) {
  std::vector<uint32_t> order{0, 1, 2};
  uint32_t chunk = 0;
  do {
    const RelayedGradient parts[]{host_.Gradient(1, kFirst, chunk),
                                  host_.Gradient(2, kSecond, chunk), Theirs(chunk)};
    EXPECT_THAT(host_.Add(parts[order[0]]), IsEmpty());
    EXPECT_THAT(host_.Add(parts[order[1]]), IsEmpty());
    EXPECT_EQ(host_.Add(parts[order[2]]).size(), 1u);
    const wire::WorkerMessage& message = host_.last().message;
    EXPECT_EQ(NodeOf(message.gradient_part().subtree()), (TreeNode{3, 0}));
    EXPECT_EQ(message.via(), 1u);
    std::vector<uint32_t> ranks;
    for (const wire::AddedPart& added : message.gradient_part().added()) {
      ranks.push_back(added.rank());
    }
    EXPECT_THAT(ranks, ElementsAre(11, 12, 13, 14));
    ++chunk;
  } while (std::ranges::next_permutation(order).found);
}

TEST_F(RelayedSums, MayBeAllThatIsAdded) {
  const RelayedGradient ours =
      host_.Sum({2, 0}, {host_.Gradient(1, kFirst), host_.Gradient(2, kSecond)});
  EXPECT_THAT(host_.Add(Theirs()), IsEmpty());
  EXPECT_THAT(host_.Add(ours), ElementsAre("3.0 = 1.0 + 1.1 + 1.2 + 1.3"));
}

// The other relay's subtree has no right child, so it is higher than those of its two workers.
TEST_F(RelayedSums, MayEndWithTheLastSlice) {
  HandSums host(6);
  host.Give(1, {{2, 0}});
  host.Give(2, {{0, 4}});
  host.Give(3, {{0, 5}});
  EXPECT_THAT(host.Add(host.Sum({2, 1}, {host.Gradient(2, {0, 4}), host.Gradient(3, {0, 5})})),
              IsEmpty());
  EXPECT_THAT(host.Add(1, {2, 0}), ElementsAre("3.0 = 2.0 + 0.4 + 0.5"));
}

TEST_F(RelayedSums, MayBeEmpty) {
  HandSums host(8, /*empty=*/{4, 8});
  host.Give(1, {{2, 0}});
  host.Give(3, {kThird});
  host.Give(4, {kFourth});
  EXPECT_THAT(host.Add(host.Sum(kTheirs, {host.Gradient(3, kThird), host.Gradient(4, kFourth)})),
              IsEmpty());
  EXPECT_THAT(host.Add(1, {2, 0}), ElementsAre("3.0 = 2.0 + 1.2 + 1.3"));
}

// If this host has no neighbours, they pass through.
TEST_F(RelayedSums, MayHaveNoNeighbours) {
  HandSums host(16);
  host.Give(1, {{2, 0}});
  host.Give(3, {{1, 6}});
  host.Give(4, {{1, 7}});
  EXPECT_THAT(host.Add(1, {2, 0}), ElementsAre("2.0"));
  // This relay knows the same orders, so it waits for the same gradients.
  EXPECT_THAT(host.Add(host.Sum({2, 3}, {host.Gradient(3, {1, 6}), host.Gradient(4, {1, 7})})),
              ElementsAre("2.3 = 1.6 + 1.7"));
}

// The other relay sends them one by one after it has waited for too long.
TEST_F(RelayedSums, MayComeInParts) {
  EXPECT_THAT(host_.Add(4, kFourth), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  EXPECT_THAT(host_.Add(3, kThird), IsEmpty());
  EXPECT_THAT(host_.Add(2, kSecond), ElementsAre("3.0 = 1.0 + 1.1 + 1.2 + 1.3"));
}

TEST_F(RelayedSums, AreAddedOnce) {
  EXPECT_THAT(host_.Add(Theirs()), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  EXPECT_THAT(host_.Add(Theirs()), IsEmpty());
  EXPECT_THAT(host_.Add(3, kThird), IsEmpty());
  EXPECT_THAT(host_.Add(4, kFourth), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  EXPECT_THAT(host_.Add(2, kSecond), ElementsAre("3.0 = 1.0 + 1.1 + 1.2 + 1.3"));
  EXPECT_THAT(host_.Add(Theirs()), IsEmpty());
  EXPECT_THAT(host_.Add(2, kSecond), IsEmpty());
  // The parts first, and then their sum.
  EXPECT_THAT(host_.Add(4, kFourth, 1), IsEmpty());
  EXPECT_THAT(host_.Add(Theirs(1)), IsEmpty());
  EXPECT_THAT(host_.Close(1), ElementsAre("1.1", "2.1 = 1.2 + 1.3", "1.3 of chunk 1"));
}

// The other relay knows that, too, and sends the gradients of its other workers again.
TEST_F(RelayedSums, AreDroppedIfOneOfTheirOrdersIsClosed) {
  EXPECT_THAT(host_.Add(Theirs()), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  EXPECT_THAT(host_.Add(2, kSecond), ElementsAre("3.0 = 1.0 + 1.1 + 1.2 + 1.3"));
  EXPECT_THAT(host_.Add(Theirs(1)), IsEmpty());
  EXPECT_THAT(host_.Add(2, kSecond, 1), IsEmpty());
  EXPECT_THAT(host_.Close(4), ElementsAre("1.0", "1.1", "1.1 of chunk 1"));
  EXPECT_THAT(host_.Add(3, kThird), ElementsAre("1.2"));
  EXPECT_THAT(host_.Add(3, kThird, 1), ElementsAre("1.2 of chunk 1"));
  EXPECT_THAT(host_.Add(Theirs(2)), ElementsAre("2.1 = 1.2 + 1.3 of chunk 2"))
      << "the server drops it";
}

TEST_F(RelayedSums, ArePassedOnIfAnotherOrderIsClosed) {
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  EXPECT_THAT(host_.Add(Theirs()), IsEmpty());
  EXPECT_THAT(host_.Close(2), ElementsAre("1.0", "2.1 = 1.2 + 1.3"));
  EXPECT_EQ(host_.last().message.SerializeAsString(), Theirs().message.SerializeAsString());
  EXPECT_THAT(host_.Add(Theirs(1)), ElementsAre("2.1 = 1.2 + 1.3 of chunk 1"));
}

TEST_F(RelayedSums, ArePassedOnIfAWorkerIsLate) {
  EXPECT_THAT(host_.Add(Theirs()), IsEmpty());
  host_.Advance(milliseconds(501));
  EXPECT_THAT(host_.TakeLate(), ElementsAre("2.1 = 1.2 + 1.3"));
}

// The relay above does not wait once more for those that another one has given up.
TEST_F(RelayedSums, AGradientThatAnotherRelayFoundLateEndsTheWait) {
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  EXPECT_THAT(host_.Add(1, kFirst, 1), IsEmpty());
  RelayedGradient third = host_.Gradient(3, kThird);
  third.message.mutable_gradient_part()->set_late(true);
  EXPECT_THAT(host_.Add(third), ElementsAre("1.0", "1.2", "1.0 of chunk 1"));
  EXPECT_THAT(host_.Add(2, kSecond), ElementsAre("1.1"));
  EXPECT_THAT(host_.TakeLate(), IsEmpty());
}

// Sums that do not match the orders go to the server, which drops and counts them.
TEST_F(RelayedSums, OtherSumsThanThoseOfNeighboursGoAlone) {
  const RelayedGradient second = host_.Gradient(2, kSecond), third = host_.Gradient(3, kThird),
                        fourth = host_.Gradient(4, kFourth);
  EXPECT_THAT(host_.Add(1, kFirst), IsEmpty());
  EXPECT_THAT(host_.Add(2, kSecond), IsEmpty());
  EXPECT_THAT(host_.Add(host_.Sum(kTheirs, {fourth, third})), ElementsAre("2.1 = 1.3 + 1.2"));
  EXPECT_THAT(host_.Add(host_.Sum(kTheirs, {second, fourth})), ElementsAre("2.1 = 1.1 + 1.3"));
  EXPECT_THAT(host_.Add(host_.Sum(kTheirs, {third, fourth, fourth})),
              ElementsAre("2.1 = 1.2 + 1.3 + 1.3"));
  RelayedGradient unknown = Theirs();
  unknown.message.mutable_gradient_part()->mutable_added(1)->set_order(99);
  EXPECT_THAT(host_.Add(unknown), ElementsAre("2.1 = 1.2 + 1.3 of an unknown order"));
  unknown.message.mutable_gradient_part()->mutable_added(0)->set_order(99);
  EXPECT_THAT(host_.Add(unknown), ElementsAre("2.1 = 1.2 of an unknown order"));
  EXPECT_THAT(host_.Add(Theirs()), ElementsAre("3.0 = 1.0 + 1.1 + 1.2 + 1.3"));
}

}  // namespace relayed_sums_test
}  // namespace muster
