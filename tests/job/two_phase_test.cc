// Steps that need the whole gradient before any update: clipping by the global norm, and skipping
// steps with values that are not finite. Through a real server.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/base/error.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace two_phase_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The buffer's padding has no gradient.
bool IsPadding(const Graph& graph, size_t i) {
  for (const Variable& variable : graph.variables()) {
    if (i >= variable.offset && i < variable.offset + variable.count) return false;
  }
  return true;
}

using Change = std::function<void(config::Config&)>;

struct Outcome {
  std::vector<float> seen;  // the last weights that rank 0 saw
  uint64_t hash = 0;
};

Outcome RunJob(uint32_t workers, uint32_t slices, const WorkerBehaviour& behaviour,
               const Change& change, const std::string& transport = "ipc") {
  config::Config config = SmallConfig(workers, slices);
  change(config);
  TestJob job(config, transport);
  Outcome outcome;
  outcome.seen = RunWorkers(job, behaviour);
  outcome.hash = job.Finish().weights_hash;
  return outcome;
}

// All elements have the gradient 1 from each of 3 slices, so 3 in sum. The norm is 3 √n.
TEST(ClipNorm, ScalesTheWholeGradient) {
  const config::Config config = SmallConfig(2, 3);
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const auto n = static_cast<double>(graph.layout().parameter_count());
  const double norm = 3 * std::sqrt(n);
  for (const double limit : {0.5, 10.0, 1e6}) {
    const Outcome outcome = RunJob(
        2, 3,
        {.gradient = [&](int64_t, int64_t, size_t i) { return IsPadding(graph, i) ? 0.0f : 1.0f; }},
        [&](config::Config& c) {
          c.mutable_run()->set_steps(2);  // so rank 0 sees W(1)
          c.mutable_optimizer()->set_clip_norm(static_cast<float>(limit));
        });
    const double expected = -3 * std::min(1.0, limit / (norm + 1e-6));
    for (const Variable& variable : graph.variables()) {
      for (size_t i = variable.offset; i < variable.offset + variable.count; ++i) {
        ASSERT_NEAR(outcome.seen[i], expected, 1e-6 * std::abs(expected)) << limit;
      }
    }
  }
}

// A first phase without effect does not change the bits.
TEST(TwoPhases, HaveTheBitsOfOne) {
  for (const char* text : {"", "ADAM", "MOMENTUM"}) {
    const auto with = [&](const Change& change) {
      return RunJob(2, 3, {.gradient = Rough},
                    [&](config::Config& c) {
                      config::Optimizer::Type type = config::Optimizer::SGD;
                      (void)config::Optimizer::Type_Parse(text, &type);
                      c.mutable_optimizer()->set_type(type);
                      c.mutable_optimizer()->set_clip_value(20);
                      change(c);
                    })
          .hash;
    };
    const uint64_t hash = with([](config::Config&) {});
    EXPECT_EQ(
        with([](config::Config& c) { c.mutable_run()->set_on_nonfinite(config::Run::SKIP_STEP); }),
        hash);
    EXPECT_EQ(with([](config::Config& c) { c.mutable_optimizer()->set_clip_norm(1e9f); }), hash);
    EXPECT_NE(with([](config::Config& c) { c.mutable_optimizer()->set_clip_norm(1); }), hash);
  }
}

TEST(ClipNorm, BitsDoNotDependOnWorkersTransportThreadsOrChunks) {
  const auto hash = [](uint32_t workers, uint32_t threads, int64_t chunk_bytes,
                       const std::string& transport) {
    return RunJob(
               workers, 4, {.gradient = Rough},
               [&](config::Config& c) {
                 c.mutable_optimizer()->set_type(config::Optimizer::ADAM);
                 c.mutable_optimizer()->set_clip_norm(3);
                 c.mutable_server()->set_threads(threads);
                 c.mutable_cluster()->set_chunk_bytes(chunk_bytes);
               },
               transport)
        .hash;
  };
  const uint64_t expected = hash(1, 1, 1024, "ipc");
  EXPECT_EQ(hash(3, 4, 1024, "ipc"), expected);
  EXPECT_EQ(hash(4, 2, 4000, "local"), expected);
  EXPECT_EQ(hash(2, 4, 1 << 20, "local"), expected);
}

Change SkipStep(int64_t steps, int64_t max_skipped = 10) {
  return [=](config::Config& c) {
    c.mutable_run()->set_steps(steps);
    c.mutable_run()->set_on_nonfinite(config::Run::SKIP_STEP);
    c.mutable_run()->set_max_skipped_steps(max_skipped);
    c.mutable_optimizer()->set_type(config::Optimizer::ADAM);
    c.mutable_optimizer()->set_ema_decay(0.5);
  };
}

// Skipped steps have no effect on weights, moments and Adam's count of steps.
TEST(SkipStep, LeavesEverythingAsItWas) {
  const uint64_t expected = RunJob(2, 3, {.gradient = Rough}, SkipStep(3)).hash;
  for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
    for (const std::string transport : {"ipc", "local"}) {
      // Steps 1 and 3 of 5 are bad in one element of one slice.
      const auto sometimes = [&](int64_t step, int64_t slice, size_t i) {
        if (step % 2 == 1) return slice == 1 && i == 307 ? bad : Rough(9, slice, i);
        return Rough(step / 2, slice, i);
      };
      EXPECT_EQ(RunJob(2, 3, {.gradient = sometimes}, SkipStep(5), transport).hash, expected);
    }
  }
}

// The loss is not finite. The gradients still arrive, but are not used even if they are finite.
TEST(SkipStep, SkipsForALoss) {
  config::Config config = SmallConfig(1, 1);
  SkipStep(3)(config);
  config.mutable_optimizer()->Clear();
  TestJob job(config);
  auto client = job.Join(0);
  client->ReportReady();
  std::vector<float> first_weights;
  for (;;) {
    const Order order = client->NextOrder();
    if (order.kind == Order::Kind::kStop) break;
    for (size_t c = 0; c < client->chunks().size(); ++c) client->AwaitChunk(order.version, c);
    first_weights.push_back(client->Weights(order.version)[0]);
    client->ReportLoss(order.version, order.parts.at(0), 0,
                       client->plan().At(order.version).samples,
                       order.version == 1 ? std::nan("") : 1, 0);
    for (float& g : client->GradientBuffer(0)) g = 1;
    for (size_t c = client->chunks().size(); c-- > 0;) {
      client->PushChunk(order.version, order.parts[0], c);
    }
  }
  client.reset();
  job.Finish();
  EXPECT_EQ(first_weights, (std::vector<float>{0, -1, -1}));
}

TEST(SkipStep, StopsAfterTooManyInARow) {
  // Bad steps: 1, 2, 4, 5, 6.
  const auto gradient = [](int64_t step, int64_t slice, size_t i) {
    return step % 3 != 0 || step == 6 ? (slice == 2 && i == 307 ? kNan : 1.0f) : 1.0f;
  };
  config::Config config = SmallConfig(2, 3);
  SkipStep(20, 3)(config);
  TestJob job(config);
  EXPECT_THROW(RunWorkers(job, {.gradient = gradient}), Error);
  ExitCode code{};
  EXPECT_THAT(
      job.FinishError(&code),
      AllOf(HasSubstr("hidden/bias[3]"), HasSubstr("nan"), HasSubstr("rank 1"), HasSubstr("step 6"),
            HasSubstr("3 steps skipped in a row"), HasSubstr("max_skipped_steps")));
  EXPECT_EQ(code, ExitCode::kNonfinite);
}

// Finite gradients with an infinite sum: no rank is to blame.
TEST(SkipStep, NamesASumThatOverflows) {
  config::Config config = SmallConfig(2, 2);
  SkipStep(3, 1)(config);
  TestJob job(config);
  EXPECT_THROW(RunWorkers(job, {.gradient = [](int64_t, int64_t, size_t) { return 3e38f; }}),
               Error);
  EXPECT_THAT(job.FinishError(),
              AllOf(HasSubstr("the sum of the gradients of "), HasSubstr("] is inf"),
                    HasSubstr("1 step skipped in a row")));
}

// A finite gradient that breaks a weight would do so again, so the run stops.
TEST(SkipStep, DoesNotSkipAWeightThatOverflows) {
  config::Config config = SmallConfig(1, 1);
  SkipStep(5)(config);
  config.mutable_optimizer()->set_type(config::Optimizer::SGD);
  config.mutable_learning_rate()->set_base(10);
  TestJob job(config);
  EXPECT_THROW(RunWorkers(job, {.gradient = [](int64_t, int64_t, size_t) { return 1e38f; }}),
               Error);
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code),
              AllOf(HasSubstr("the update set"), HasSubstr("SKIP_STEP does not apply")));
  EXPECT_EQ(code, ExitCode::kNonfinite);
}

// With clip_norm the whole gradient is checked before any update.
TEST(ClipNorm, AGradientThatIsNotFiniteStopsTheRun) {
  config::Config config = SmallConfig(2, 2);
  config.mutable_optimizer()->set_clip_norm(1);
  TestJob job(config);
  EXPECT_THROW(RunWorkers(job, {.gradient =
                                    [](int64_t step, int64_t slice, size_t i) {
                                      return step == 1 && slice == 1 && i == 304 ? kNan : 1.0f;
                                    }}),
               Error);
  ExitCode code{};
  EXPECT_THAT(job.FinishError(&code),
              AllOf(HasSubstr("hidden/bias[0] is nan"), HasSubstr("rank 1"), HasSubstr("ABORT")));
  EXPECT_EQ(code, ExitCode::kNonfinite);
}

// Weights fall by 1 per step, e ← (e + w) / 2 from 0: after 4 steps -3.0625 at weights of -4.
TEST(Average, IsWhatWorkersEvaluate) {
  for (const std::string transport : {"ipc", "tcp", "local"}) {
    config::Config config = SmallConfig(2, 2);
    config.mutable_run()->set_steps(4);
    config.mutable_optimizer()->set_ema_decay(0.5);
    config.mutable_evaluation()->set_use_ema(true);
    config.mutable_evaluation()->set_every_steps(2);
    config.mutable_evaluation()->set_skip_final(false);
    config.mutable_evaluation()->set_batch(20);
    TestJob job(config, transport);
    // Only one block: rank 1 evaluates nothing, but must still wait for the average.
    job.test_samples = 20;
    std::vector<std::pair<int64_t, float>> averages;  // of rank 0: version, value
    RunWorkers(job,
               {.gradient = [](int64_t, int64_t slice, size_t) { return slice == 0 ? 1.0f : 0.0f; },
                .on_average =
                    [&](int64_t version, std::span<const float> average) {
                      for (const float e : average) ASSERT_EQ(e, average[0]);
                      averages.push_back({version, average[0]});
                    }});
    job.Finish();
    using Pair = std::pair<int64_t, float>;
    EXPECT_EQ(averages, (std::vector<Pair>{{2, -1.25f}, {4, -3.0625f}})) << transport;
  }
}

}  // namespace two_phase_test
}  // namespace muster::testing
