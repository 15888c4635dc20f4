// Detecting gradients that are only partly written.
#include "worker/client/gradient_guard.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Variables hidden/weights (300 floats), hidden/bias (100), out/weights (1,000) and out/bias (10),
// with padding between.
class Guard : public ::testing::Test {
 protected:
  std::string Trouble(size_t begin, size_t end) {
    try {
      guard_.Check(arena_, begin, end, "slice 3 of step 12");
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kFailure);
      return error.what();
    }
  }

  const Graph graph_ = [] {
    const config::Config config = SmallConfig(1, 1);
    return BuildGraph(config.model(), InputShape(config.data()));
  }();
  const GradientGuard guard_{graph_.layout()};
  std::vector<float> arena_ = std::vector<float>(graph_.arena_floats(), 0);
};

TEST_F(Guard, PaddingIsNobodysToWrite) {
  const Variable& bias = graph_.variables()[1];
  const size_t padding = bias.offset + bias.count;
  ASSERT_LT(padding, graph_.variables()[2].offset);
  guard_.Fill(arena_, 0, arena_.size());
  EXPECT_TRUE(std::isnan(arena_[padding - 1]));
  EXPECT_EQ(arena_[padding], 0);
  for (const Variable& variable : graph_.variables()) {
    std::fill_n(arena_.begin() + static_cast<ptrdiff_t>(variable.offset), variable.count, 1.0f);
  }
  EXPECT_EQ(Trouble(0, arena_.size()), "");
}

TEST_F(Guard, NamesVariableAndIndex) {
  const Variable& weights = graph_.variables()[2];
  guard_.Fill(arena_, weights.offset + 7, weights.offset + 9);
  EXPECT_THAT(Trouble(0, arena_.size()),
              AllOf(HasSubstr("gradient of out/weights was not written: index 7 of 1,000, 2 of "),
                    HasSubstr("(slice 3 of step 12)")));
  // A chunk check only detects it if the variable ends in that chunk.
  EXPECT_EQ(Trouble(weights.offset + 9, arena_.size()), "");
  EXPECT_THAT(Trouble(weights.offset + 8, weights.offset + 9),
              HasSubstr("index 8 of 1,000, 1 of the 1 floats"));
}

TEST_F(Guard, OtherNansAreGradients) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  volatile float zero = 0;
  for (const float value : {nan, -nan, zero / zero, INFINITY, std::bit_cast<float>(0x7fffffffu)}) {
    arena_[5] = value;
    EXPECT_EQ(Trouble(0, arena_.size()), "");
  }
}

// A worker writes all of its gradient except one float, which keeps the value of the last step.
void RunForgetful(Client& client, size_t arena_floats, size_t forgotten, float value) {
  client.ReportReady();
  for (;;) {
    const Order order = client.NextOrder();
    if (order.kind == Order::Kind::kStop) return;
    for (size_t c = 0; c < client.chunks().size(); ++c) client.AwaitChunk(order.version, c);
    const Batch batch = client.plan().At(order.version);
    for (const OrderPart& part : order.parts) {
      const Range slices = Covers(part.node, client.plan().slices);
      for (int64_t s = slices.begin; s < slices.end; ++s) {
        client.ReportLoss(order.version, part, s, client.plan().Slice(batch, s).size(), 1, 0);
      }
      const std::span<float> gradient = client.GradientBuffer(part.buffer);
      for (size_t i = 0; i < arena_floats; ++i) {
        if (i != forgotten || order.version == 0) gradient[i] = value;
      }
      for (size_t c = 0; c < client.chunks().size(); ++c) client.PushChunk(order.version, part, c);
    }
  }
}

class GuardedClient : public ::testing::TestWithParam<const char*> {};

TEST_P(GuardedClient, DoesNotPushTheLastStepsBytes) {
  TestJob job(SmallConfig(1, 4), GetParam());
  ClientOptions options = job.OptionsFor(0);
  options.guard = std::make_shared<GradientGuard>(job.graph().layout());
  {
    Client client(options);
    const size_t forgotten = job.graph().variables()[2].offset + 123;
    try {
      RunForgetful(client, options.arena_floats, forgotten, 1);
      ADD_FAILURE() << "the error was not detected";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("gradient of out/weights was not written: "
                                                "index 123 of 1,000"),
                                      HasSubstr("slices 0 to 3 of step 1")));
    }
  }
  EXPECT_NE(job.FinishError(), "");
}

TEST_P(GuardedClient, ThatWritesAllOfItIsLeftAlone) {
  TestJob job(SmallConfig(1, 3), GetParam());  // orders of two subtrees
  ClientOptions options = job.OptionsFor(0);
  options.guard = std::make_shared<GradientGuard>(job.graph().layout());
  {
    Client client(options);
    RunForgetful(client, options.arena_floats, options.arena_floats, 1);
  }
  EXPECT_EQ(job.Finish().steps, 3);
}

// The server detects it, as without a guard.
TEST_P(GuardedClient, SaysNothingOfAGradientThatIsNotFinite) {
  TestJob job(SmallConfig(1, 1), GetParam());
  ClientOptions options = job.OptionsFor(0);
  options.guard = std::make_shared<GradientGuard>(job.graph().layout());
  Client client(options);
  try {
    RunForgetful(client, options.arena_floats, options.arena_floats, NAN);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kPeerFailed) << error.what();
  }
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code), HasSubstr("the gradient of hidden/weights[0] is nan"));
  EXPECT_EQ(code, ExitCode::kNonfinite);
}

INSTANTIATE_TEST_SUITE_P(All, GuardedClient, ::testing::Values("local", "ipc"));

}  // namespace
}  // namespace muster::testing
