// Orders that arrive during other work: taking over lost work, another share, a reset. The
// gradients equal those of an undisturbed worker.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "tests/trainer/hand_server.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const TreeNode kFirst{0, 0}, kSecond{0, 1}, kBoth{1, 0};

struct Case {
  const char* name;
  const char* transport;
  bool threaded = false;
};

class Orders : public ::testing::TestWithParam<Case> {
 protected:
  static HandServer::Options Of(std::vector<TreeNode> nodes, int64_t first_step = 0) {
    return {.transport = GetParam().transport,
            .threaded_backend = GetParam().threaded,
            .nodes = std::move(nodes),
            .first_step = first_step};
  }
  // The result of a worker that does nothing else.
  static HandServer::Came Undisturbed(const TreeNode& node, int64_t step) {
    HandServer server(Of({node}, step));
    server.Train(step, 5);
    return server.AwaitAll(5);
  }
  // Keeps only these chunks of the result.
  static HandServer::Came Only(HandServer::Came work, const std::vector<uint32_t>& chunks) {
    std::erase_if(work.parts, [&](const auto& part) {
      return std::ranges::find(chunks, part.first) == chunks.end();
    });
    return work;
  }
};

// The worker is in the forward pass of the next step, waiting for weights that depend on the order.
TEST_P(Orders, TakeOverInTheMiddleOfAForwardPass) {
  const HandServer::Came redone = Undisturbed(kSecond, 0), next = Undisturbed(kFirst, 1);
  HandServer server(Of({kFirst}));
  const auto last = static_cast<uint32_t>(server.chunks().size() - 1);
  server.Train(0, 1);
  server.AwaitAll(1);
  server.Train(1, 2);
  server.SendWeights(1, /*but=*/last);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(30));  // it should be in the forward pass by now
  server.TakeOver(0, 9, kSecond, {1, 2});
  EXPECT_EQ(server.Await(9, 2), Only(redone, {1, 2}));
  server.TakeOver(0, 10, kSecond, {0});
  EXPECT_EQ(server.Await(10, 1), Only(redone, {0}));
  server.SendChunk(1, last);
  EXPECT_EQ(server.AwaitAll(2), next);
  EXPECT_EQ(server.Stop(), "");
}

// Before its own part of the same step, whose weights have not all arrived.
TEST_P(Orders, TakeOverBeforeTheOwnPart) {
  const HandServer::Came first = Undisturbed(kFirst, 1), second = Undisturbed(kSecond, 1);
  HandServer server(Of({kFirst}));
  server.Train(0, 1);
  server.AwaitAll(1);
  server.Train(1, 2);
  server.SendWeights(1, 0);
  server.TakeOver(1, 3, kSecond, {});
  server.SendChunk(1, 0);
  EXPECT_EQ(server.AwaitAll(3), second);
  EXPECT_EQ(server.AwaitAll(2), first);
}

TEST_P(Orders, TakeOverWhileThereIsNothingElseToDo) {
  const HandServer::Came redone = Undisturbed(kSecond, 0);
  HandServer server(Of({kFirst}));
  server.Train(0, 1);
  server.AwaitAll(1);
  server.TakeOver(0, 2, kSecond, {});
  EXPECT_EQ(server.AwaitAll(2), redone);
}

// Some steps later the buffer is freed, and used again for the next takeover.
TEST_P(Orders, TakeOverAgainMuchLater) {
  const HandServer::Came early = Undisturbed(kSecond, 0), late = Undisturbed(kSecond, 12);
  HandServer server(Of({kFirst}));
  server.TakeOver(0, 100, kSecond, {});
  EXPECT_EQ(server.AwaitAll(100), early);
  for (int64_t step = 0; step <= 12; ++step) {
    if (step > 0) server.SendWeights(step);
    server.Train(step, static_cast<uint64_t>(step + 1));
    server.AwaitAll(static_cast<uint64_t>(step + 1));
  }
  server.TakeOver(12, 101, kSecond, {});
  EXPECT_EQ(server.AwaitAll(101), late);
}

// A subtree with more slices than the worker ever had.
TEST_P(Orders, TakeOverOfMoreThanItsOwn) {
  const HandServer::Came both = Undisturbed(kBoth, 0);
  HandServer server(Of({kFirst}));
  server.TakeOver(0, 1, kBoth, {});
  EXPECT_EQ(server.AwaitAll(1), both);
}

TEST_P(Orders, TakeOverInTheMiddleOfAnEvaluation) {
  const HandServer::Came redone = Undisturbed(kSecond, 0);
  std::map<uint32_t, double> blocks;
  {
    HandServer server(Of({kFirst}, 1));
    server.Evaluate(1);
    blocks = server.AwaitBlocks();
  }
  HandServer server(Of({kFirst}));
  server.Train(0, 1);
  server.AwaitAll(1);
  server.Evaluate(1);
  server.SendWeights(1, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  server.TakeOver(0, 2, kSecond, {});
  EXPECT_EQ(server.AwaitAll(2), redone);
  server.SendChunk(1, 1);
  EXPECT_EQ(server.AwaitBlocks(), blocks);
}

TEST_P(Orders, AnotherShare) {
  const HandServer::Came second = Undisturbed(kSecond, 1);
  HandServer server(Of({kFirst}));
  server.Train(1, 2, {kSecond});
  server.SendWeights(1);
  EXPECT_EQ(server.AwaitAll(2), second);
  EXPECT_EQ(server.orders(), 1u);
}

TEST_P(Orders, AShareMayBeNothing) {
  const HandServer::Came second = Undisturbed(kSecond, 2);
  HandServer server(Of({kFirst}));
  server.Train(1, 2, {});
  server.SendWeights(1);
  server.SendWeights(2);
  server.Train(2, 3, {kSecond});
  EXPECT_EQ(server.AwaitAll(3), second);
}

// It is waiting for weights. Its orders are dropped, and messages that were sent to its old
// incarnation do not count for the new one.
TEST_P(Orders, ResetItBeginsAnew) {
  const HandServer::Came anew = Undisturbed(kBoth, 3);
  HandServer server(Of({kFirst}));
  const auto last = static_cast<uint32_t>(server.chunks().size() - 1);
  server.Train(0, 1);
  server.AwaitAll(1);
  server.Train(1, 2);
  server.SendWeights(1, last);
  server.TakeOver(0, 4, kSecond, {});
  server.Reset();
  server.SendChunk(1, last, /*incarnation=*/0);  // of the old incarnation
  server.AwaitReady(1);
  server.Activate(3);
  server.Train(3, 20, {kBoth});
  server.SendWeights(3);
  EXPECT_EQ(server.AwaitAll(20), anew);
  EXPECT_EQ(server.Stop(), "");
}

TEST_P(Orders, ResetWithNothingToDoItBeginsAnew) {
  const HandServer::Came anew = Undisturbed(kFirst, 1);
  HandServer server(Of({kFirst}));
  server.Reset();
  server.AwaitReady(1);
  server.Reset();
  server.AwaitReady(2);
  server.Activate(1);
  server.Train(1, 2);
  server.SendWeights(1);
  EXPECT_EQ(server.AwaitAll(2), anew);
}

// The server may have reset it before it received the request.
TEST_P(Orders, ResetItSaysAgainThatItLeaves) {
  HandServer server(Of({kFirst}));
  server.AskToLeave();
  server.AwaitLeave(0);
  server.Reset();
  server.AwaitReady(1);
  server.AwaitLeave(1);
  EXPECT_EQ(server.Stop(), "");
}

TEST_P(Orders, AnOrderThatCannotBeEndsTheWorker) {
  const auto error = [](const auto& say) {
    HandServer server(Of({kFirst}));
    say(server);
    return server.End();
  };
  EXPECT_THAT(error([](HandServer& s) { s.Train(0, 1, {{0, 2}}); }), HasSubstr("Train { order: 1"));
  EXPECT_THAT(error([](HandServer& s) { s.Train(0, 1, {kSecond, kFirst}); }), HasSubstr("Train {"));
  EXPECT_THAT(error([](HandServer& s) { s.TakeOver(0, 1, {0, 2}, {}); }), HasSubstr("Train {"));
  EXPECT_THAT(error([](HandServer& s) { s.TakeOver(0, 1, kSecond, {77}); }),
              HasSubstr("chunk: 77"));
}

// The server's limit is a multiple of the median step, if that is more than deadlines.step_s.
TEST(Limits, AStepMayTakeLongerThanStepSecondsIfTheOthersDo) {
  HandServer server({.read_time = std::chrono::milliseconds(25), .step_s = 0.02});
  for (int64_t step = 0; step < 3; ++step) {
    if (step > 0) server.SendWeights(step);
    server.Train(step, static_cast<uint64_t>(step + 1));
    server.AwaitAll(static_cast<uint64_t>(step + 1));
  }
  EXPECT_EQ(server.Stop(), "");
}

INSTANTIATE_TEST_SUITE_P(All, Orders,
                         ::testing::Values(Case{"Local", "local"}, Case{"Ipc", "ipc"},
                                           Case{"LocalThreaded", "local", true},
                                           Case{"IpcThreaded", "ipc", true}),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace muster::testing
