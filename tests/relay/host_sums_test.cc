// Which gradients of a host's workers are added, and the bits and messages of their sums.
#include "worker/relay/host_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/relay/hand_sums.h"

namespace muster {
namespace host_sums_test {

using ::testing::ElementsAre;
using testing::HandSums;
using ::testing::IsEmpty;
using Nodes = std::vector<TreeNode>;

constexpr TreeNode kLeft{1, 0}, kRight{1, 1};  // halves of four slices

// Two workers with half of four slices each.
HandSums Halves(Range empty = {}) {
  HandSums host(4, empty);
  host.Give(1, {kLeft});
  host.Give(2, {kRight});
  return host;
}

TEST(HostSumsTest, TheSumIsSentWhenBothHaveCome) {
  HandSums host = Halves();
  EXPECT_THAT(host.Add(1, kLeft), IsEmpty());
  EXPECT_THAT(host.Add(2, kRight), ElementsAre("2.0 = 1.0 + 1.1"));
  EXPECT_THAT(host.Add(2, kRight, 1), IsEmpty());
  EXPECT_THAT(host.Add(1, kLeft, 1), ElementsAre("2.0 = 1.0 + 1.1 of chunk 1"));
}

// Written out: (1e8 + 1) + (-1e8 + 3), not ((1e8 + 1) - 1e8) + 3, which is 3.
TEST(HostSumsTest, TheSumNamesItsParts) {
  HandSums host = Halves();
  EXPECT_THAT(host.Add(2, kRight, 5), IsEmpty());
  EXPECT_THAT(host.Add(1, kLeft, 5), ElementsAre("2.0 = 1.0 + 1.1 of chunk 5"));
  EXPECT_THAT(host.last().payload.floats(), ElementsAre(0, 0 + 1 + 2 + 3 + 4 * 16 * 5));
  const wire::WorkerMessage& message = host.last().message;
  EXPECT_EQ(message.via(), 1u);
  EXPECT_EQ(message.address().job(), 77u);
  EXPECT_EQ(message.address().rank(), 11u);
  EXPECT_EQ(message.address().incarnation(), 21u);
  const wire::GradientPart& part = message.gradient_part();
  EXPECT_EQ(part.step(), 0);
  EXPECT_EQ(part.chunk(), 5u);
  EXPECT_EQ(NodeOf(part.subtree()), (TreeNode{2, 0}));
  EXPECT_FALSE(part.has_order());
  EXPECT_FALSE(part.has_buffer());
  EXPECT_FALSE(part.has_empty());
  ASSERT_EQ(part.added_size(), 2);
  for (const int i : {0, 1}) {
    const wire::AddedPart& added = part.added(i);
    EXPECT_EQ(added.rank(), 11u + static_cast<uint32_t>(i));
    EXPECT_EQ(added.order(), 101u + static_cast<uint32_t>(i));
    EXPECT_EQ(NodeOf(added.subtree()), i == 0 ? kLeft : kRight);
    EXPECT_EQ(added.buffer(), 1u + static_cast<uint32_t>(i));
  }
}

TEST(HostSumsTest, TheOrderOfArrivalDoesNotMatter) {
  std::vector<uint32_t> vias{1, 2, 3, 4};
  do {
    HandSums host(8);
    for (const uint32_t via : {3, 1, 4, 2}) host.Give(via, {{1, via - 1}});
    for (size_t i = 0; i < 3; ++i) EXPECT_THAT(host.Add(vias[i], {1, vias[i] - 1}), IsEmpty());
    EXPECT_THAT(host.Add(vias[3], {1, vias[3] - 1}), ElementsAre("3.0 = 1.0 + 1.1 + 1.2 + 1.3"));
  } while (std::ranges::next_permutation(vias).found);
}

// Workers 3 and 4 compute first, but their numbers are in another order than their slices.
TEST(HostSumsTest, ChunksAreAddedIndependently) {
  HandSums host(4);
  for (const uint32_t via : {1, 2, 3, 4}) host.Give(via, {{0, 4 - via}});
  for (const uint32_t chunk : {2, 0, 1}) {
    for (const uint32_t via : {4, 1, 2}) {
      EXPECT_THAT(host.Add(via, {0, 4 - via}, chunk), IsEmpty());
    }
  }
  EXPECT_THAT(host.Add(3, {0, 1}, 1), ElementsAre("2.0 = 0.0 + 0.1 + 0.2 + 0.3 of chunk 1"));
  EXPECT_THAT(host.Add(3, {0, 1}, 0), ElementsAre("2.0 = 0.0 + 0.1 + 0.2 + 0.3"));
  EXPECT_THAT(host.Add(3, {0, 1}, 2), ElementsAre("2.0 = 0.0 + 0.1 + 0.2 + 0.3 of chunk 2"));
}

TEST(HostSumsTest, OfThreeTheLastHasNoNeighbour) {
  HandSums host(8);
  for (const uint32_t via : {1, 2, 3}) host.Give(via, {{1, via - 1}});
  EXPECT_THAT(host.Add(1, {1, 0}), IsEmpty());
  EXPECT_THAT(host.Add(3, {1, 2}), ElementsAre("1.2"));
  EXPECT_THAT(host.Add(2, {1, 1}), ElementsAre("2.0 = 1.0 + 1.1"));
  EXPECT_THAT(host.Add(3, {1, 2}, 1), ElementsAre("1.2 of chunk 1"));
}

TEST(HostSumsTest, SharesMayBeUneven) {
  HandSums three(4);
  three.Give(1, {kLeft, {0, 2}});
  three.Give(2, {{0, 3}});
  EXPECT_THAT(three.Add(1, {0, 2}), IsEmpty());
  EXPECT_THAT(three.Add(1, kLeft), IsEmpty());
  EXPECT_THAT(three.Add(2, {0, 3}), ElementsAre("2.0 = 1.0 + 0.2 + 0.3"));
  HandSums pieces(4);
  pieces.Give(1, {kLeft});
  pieces.Give(2, {{0, 2}, {0, 3}});
  EXPECT_THAT(pieces.Add(2, {0, 3}), IsEmpty());
  EXPECT_THAT(pieces.Add(1, kLeft), IsEmpty());
  EXPECT_THAT(pieces.Add(2, {0, 2}), ElementsAre("2.0 = 1.0 + 0.2 + 0.3"));
  // Slices 0 to 2 and 3 to 7. The subtrees in the middle complete one only together with the rest.
  HandSums eight(8);
  eight.Give(1, Decompose({0, 3}, 8));
  eight.Give(2, Decompose({3, 8}, 8));
  EXPECT_THAT(eight.Add(2, {2, 1}), IsEmpty());
  EXPECT_THAT(eight.Add(1, {0, 2}), IsEmpty());
  EXPECT_THAT(eight.Add(2, {0, 3}), IsEmpty());
  EXPECT_THAT(eight.Add(1, {1, 0}), ElementsAre("3.0 = 1.0 + 0.2 + 0.3 + 2.1"));
}

// A worker in the middle of the batch has subtrees in two sums, and one that it sends itself.
TEST(HostSumsTest, AWorkerMayBePartOfSeveralSums) {
  HandSums host(9);
  host.Give(1, {{0, 1}, {1, 3}, {3, 1}});
  host.Give(2, {{0, 0}, {1, 2}});
  EXPECT_THAT(host.Add(1, {0, 1}), IsEmpty());
  EXPECT_THAT(host.Add(1, {1, 3}), IsEmpty());
  EXPECT_THAT(host.Add(1, {3, 1}), ElementsAre("3.1"));
  EXPECT_THAT(host.Add(2, {1, 2}), ElementsAre("2.1 = 1.2 + 1.3"));
  EXPECT_THAT(host.Add(2, {0, 0}), ElementsAre("1.0 = 0.0 + 0.1"));
}

// Some right children are missing.
TEST(HostSumsTest, SlicesNeedNotBeAPowerOfTwo) {
  HandSums five(5);
  five.Give(1, Decompose({0, 2}, 5));
  five.Give(2, Decompose({2, 5}, 5));
  EXPECT_THAT(five.Add(1, {1, 0}), IsEmpty());
  EXPECT_THAT(five.Add(2, {1, 1}), IsEmpty());
  EXPECT_THAT(five.Add(2, {2, 1}), ElementsAre("3.0 = 1.0 + 1.1 + 2.1"));
  HandSums six(6);
  six.Give(1, {{0, 4}});
  six.Give(2, {{0, 5}});
  EXPECT_THAT(six.Add(2, {0, 5}), IsEmpty());
  EXPECT_THAT(six.Add(1, {0, 4}), ElementsAre("2.1 = 0.4 + 0.5"));
  HandSums seven(7);
  seven.Give(1, {{1, 2}});
  seven.Give(2, {{1, 3}});
  EXPECT_THAT(seven.Add(1, {1, 2}), IsEmpty());
  EXPECT_THAT(seven.Add(2, {1, 3}), ElementsAre("2.1 = 1.2 + 1.3"));
}

// All shares that the server gives to the workers of a single host.
TEST(HostSumsTest, AllWorkersTogetherSendOneSum) {
  for (int64_t slices = 2; slices <= 9; ++slices) {
    for (uint32_t workers = 2; workers <= slices; ++workers) {
      HandSums host(slices);
      std::vector<std::pair<uint32_t, TreeNode>> parts;
      for (uint32_t via = 0; via < workers; ++via) {
        const Nodes nodes = Decompose(EvenPart(slices, workers, via), slices);
        host.Give(via, nodes);
        for (const TreeNode& node : nodes) parts.emplace_back(via, node);
      }
      std::rotate(parts.begin(), parts.begin() + 1, parts.end());
      size_t sent = 0;
      for (const auto& [via, node] : parts) sent += host.Add(via, node).size();
      EXPECT_EQ(sent, 1u) << workers << " of " << slices;
      const wire::GradientPart& sum = host.last().message.gradient_part();
      EXPECT_EQ(NodeOf(sum.subtree()), Root(slices));
      EXPECT_EQ(static_cast<size_t>(sum.added_size()), parts.size());
    }
  }
}

TEST(HostSumsTest, OthersThanNeighboursSendAtOnce) {
  HandSums host(8);
  host.Give(1, {{1, 1}});
  host.Give(2, {{1, 2}});  // beside it, but below another node
  host.Give(3, {{0, 7}});
  host.Give(4, {{0, 0}});
  EXPECT_THAT(host.Add(1, {1, 1}), ElementsAre("1.1"));
  EXPECT_THAT(host.Add(2, {1, 2}), ElementsAre("1.2"));
  EXPECT_THAT(host.Add(3, {0, 7}), ElementsAre("0.7"));
  EXPECT_THAT(host.Add(4, {0, 0}), ElementsAre("0.0"));
  HandSums five(5);
  five.Give(1, {{1, 1}});
  five.Give(2, {{2, 1}});
  EXPECT_THAT(five.Add(2, {2, 1}), ElementsAre("2.1"));
  EXPECT_THAT(five.Add(1, {1, 1}), ElementsAre("1.1"));
}

TEST(HostSumsTest, EmptySubtreesAddNothing) {
  for (const uint32_t full : {1, 2}) {
    HandSums host = Halves(full == 1 ? Range{2, 4} : Range{0, 2});
    const RelayedGradient gradient = host.Gradient(full, full == 1 ? kLeft : kRight);
    EXPECT_THAT(host.Add(3 - full, full == 1 ? kRight : kLeft), IsEmpty());
    EXPECT_THAT(host.Add(gradient), ElementsAre("2.0 = 1.0 + 1.1"));
    EXPECT_FALSE(host.last().message.gradient_part().has_empty());
    EXPECT_EQ(host.last().payload.data, gradient.payload.data) << "not copied";
  }
  HandSums some = Halves({3, 4});
  EXPECT_THAT(some.Add(1, kLeft), IsEmpty());
  EXPECT_THAT(some.Add(2, kRight), ElementsAre("2.0 = 1.0 + 1.1"));
  EXPECT_THAT(some.last().payload.floats(), ElementsAre(0, 0 + 1 + 2));
}

TEST(HostSumsTest, ASumOfEmptySubtreesIsEmpty) {
  HandSums host = Halves({0, 4});
  EXPECT_THAT(host.Add(1, kLeft), IsEmpty());
  EXPECT_THAT(host.Add(2, kRight), ElementsAre("2.0 = 1.0 + 1.1"));
  EXPECT_TRUE(host.last().message.gradient_part().empty());
  EXPECT_EQ(host.last().payload.bytes, 0u);
  EXPECT_EQ(host.last().payload.owner, nullptr);
}

TEST(HostSumsTest, WorkThatWasTakenOverGoesAlone) {
  for (const bool is_urgent : {true, false}) {
    HandSums host(4);
    wire::Train taken = host.Train(1, {kLeft});
    if (is_urgent) {
      taken.set_urgent(true);
    } else {
      taken.add_chunk(0);
    }
    host.Give(1, taken);
    host.Give(2, {kRight});
    EXPECT_THAT(host.Add(1, kLeft), ElementsAre("1.0"));
    EXPECT_THAT(host.Add(2, kRight), ElementsAre("1.1"));
  }
  // Work that is taken over later does not change the sums of the others.
  HandSums more(8);
  more.Give(1, {{1, 0}});
  more.Give(2, {{1, 1}});
  EXPECT_THAT(more.Add(1, {1, 0}), IsEmpty());
  wire::Train urgent = more.Train(2, {{2, 1}});
  urgent.set_urgent(true);
  more.Give(2, urgent);
  EXPECT_THAT(more.Add(2, {2, 1}), ElementsAre("2.1"));
  EXPECT_THAT(more.Add(2, {1, 1}), ElementsAre("2.0 = 1.0 + 1.1"));
}

TEST(HostSumsTest, OtherGradientsThanThoseOrderedGoAlone) {
  HandSums host = Halves();
  EXPECT_THAT(host.Add(1, kLeft), IsEmpty());
  RelayedGradient unknown = host.Gradient(2, kRight);
  unknown.message.mutable_gradient_part()->set_order(99);
  EXPECT_THAT(host.Add(unknown), ElementsAre("1.1"));
  RelayedGradient stolen = host.Gradient(2, kRight);
  stolen.message.set_via(1);
  EXPECT_THAT(host.Add(stolen), ElementsAre("1.1"));
  RelayedGradient part = host.Gradient(2, kRight);
  *part.message.mutable_gradient_part()->mutable_subtree() = SubtreeOf({0, 3});
  part.payload = host.Gradient(2, {0, 3}).payload;
  EXPECT_THAT(host.Add(part), ElementsAre("0.3"));
  EXPECT_THAT(host.Add(2, kRight, 0, 1), ElementsAre("1.1")) << "of a step without orders";
  EXPECT_THAT(host.Add(2, kRight), ElementsAre("2.0 = 1.0 + 1.1")) << "it was waited for";
}

// The first gradient of a step fixes its sums.
TEST(HostSumsTest, AnOrderThatComesLaterIsNotWaitedFor) {
  HandSums host(4);
  host.Give(1, {kLeft});
  EXPECT_THAT(host.Add(1, kLeft), ElementsAre("1.0"));
  host.Give(2, {kRight});
  EXPECT_THAT(host.Add(2, kRight), ElementsAre("1.1"));
  EXPECT_THAT(host.Add(1, kLeft, 1), ElementsAre("1.0 of chunk 1"));
}

TEST(HostSumsTest, EachStepHasItsOwnOrders) {
  HandSums host = Halves();
  host.Give(1, {kRight}, 1);  // the other way round
  host.Give(2, {kLeft}, 1);
  EXPECT_THAT(host.Add(1, kRight, 0, 1), IsEmpty());
  EXPECT_THAT(host.Add(1, kLeft, 0, 0), IsEmpty());
  EXPECT_THAT(host.Add(2, kLeft, 0, 1), ElementsAre("2.0 = 1.0 + 1.1"));
  EXPECT_EQ(host.last().message.via(), 2u);
  EXPECT_EQ(host.last().message.gradient_part().step(), 1);
  EXPECT_THAT(host.Add(2, kRight, 0, 0), ElementsAre("2.0 = 1.0 + 1.1"));
  EXPECT_EQ(host.last().message.gradient_part().step(), 0);
}

}  // namespace host_sums_test
}  // namespace muster
