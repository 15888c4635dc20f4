// A whole job whose worker computes on a device with various delays. The server ends with the
// weights of a job on the CPU.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/backend/threaded_backend.h"
#include "tests/data/test_sets.h"
#include "tests/job/test_job.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/trainer/trainer.h"

namespace muster::testing {
namespace {

constexpr std::array<int, 3> kSchedules[] = {
    {200, 200, 200}, {500, 0, 0}, {0, 1500, 0}, {0, 0, 1500}};

// Transport, slices, wire format.
struct Case {
  const char* name;
  const char* transport;
  uint32_t slices;
  config::Cluster::WireDtype wire = config::Cluster::FP32;
};

class ThreadedJob : public ::testing::TestWithParam<Case> {
 protected:
  ServerResult RunOn(Backend& backend, bool guarded = false, bool mixed = false) {
    config::Config config = SmallConfig(1, GetParam().slices);
    if (mixed) {
      for (const double weight : {0.5, 3.0}) config.mutable_data()->add_class_weights(weight);
      config.mutable_data()->mutable_preprocess()->set_mixup_alpha(1);
    }
    // Batches of 13, 13, 13 and 1: in the last one only one slice has a sample.
    config.mutable_run()->set_global_batch(13);
    config.mutable_run()->set_steps(6);
    for (config::Layer& layer : *config.mutable_model()->mutable_layer()) {
      if (layer.has_dense()) layer.mutable_dense()->clear_weights();  // initialized randomly
    }
    config.mutable_learning_rate()->set_base(0.1);
    config.mutable_cluster()->set_wire_dtype(GetParam().wire);
    config.mutable_optimizer()->set_ema_decay(0.5);
    config.mutable_evaluation()->set_use_ema(true);
    config.mutable_evaluation()->set_every_steps(2);
    config.mutable_evaluation()->set_skip_final(false);
    config.mutable_evaluation()->set_batch(10);
    TestJob job(config, GetParam().transport);
    job.test_samples = 25;
    const Datasets data{std::make_unique<MemorySet>(TestJob::kSamples, Shape{1, 1, 3}),
                        std::make_unique<MemorySet>(job.test_samples, Shape{1, 1, 3}, 2)};
    {
      ClientOptions options = job.OptionsFor(0);
      if (guarded) options.guard = std::make_shared<GradientGuard>(job.graph().layout());
      Client client(options);
      Trainer(config, job.graph(), data, backend, client).Run();
    }
    return job.Finish();
  }
};

TEST_P(ThreadedJob, EndsWithTheWeightsOfAJobOnTheCpu) {
  const ServerResult expected = RunOn(*MakeCpuBackend(1));
  EXPECT_EQ(expected.steps, 6);
  for (const auto& delays : kSchedules) {
    ThreadedBackend backend({.delays = delays});
    const ServerResult got = RunOn(backend);
    EXPECT_EQ(got.weights_hash, expected.weights_hash);
    EXPECT_EQ(got.test_accuracy, expected.test_accuracy);
    EXPECT_EQ(got.dropped_messages, 0u);
  }
}

TEST_P(ThreadedJob, WeighsClassesAndMixesSamplesAsAJobOnTheCpu) {
  const ServerResult plain = RunOn(*MakeCpuBackend(1));
  const ServerResult expected = RunOn(*MakeCpuBackend(1), false, /*mixed=*/true);
  EXPECT_NE(expected.weights_hash, plain.weights_hash);
  ThreadedBackend backend({.delays = kSchedules[0]});
  EXPECT_EQ(RunOn(backend, false, /*mixed=*/true).weights_hash, expected.weights_hash);
}

TEST_P(ThreadedJob, AGuardChangesNothing) {
  const ServerResult expected = RunOn(*MakeCpuBackend(1));
  EXPECT_EQ(RunOn(*MakeCpuBackend(1), /*guarded=*/true).weights_hash, expected.weights_hash);
  ThreadedBackend backend({});
  EXPECT_EQ(RunOn(backend, /*guarded=*/true).weights_hash, expected.weights_hash);
}

// From some step on, the gradient of the second layer's bias is not written. Without a guard the
// job would use the previous gradient, or other data in the buffer.
TEST_P(ThreadedJob, AGradientThatIsLeftUnwrittenIsNamed) {
  std::vector<float> elsewhere(1000);
  int calls = 0;
  ThreadedBackend backend({.mistake = [&](BackwardArgs& args) {
    // Two layers have a bias. Backward handles the last one first.
    if (args.bias_gradient != nullptr && ++calls > 8 && calls % 2 == 1) {
      args.bias_gradient = elsewhere.data();
    }
  }});
  try {
    RunOn(backend, /*guarded=*/true);
    ADD_FAILURE() << "the error was not detected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kFailure);
    EXPECT_THAT(error.what(),
                ::testing::ContainsRegex("gradient of out/bias was not written: index 0 of 10, "
                                         "[0-9]+ of the [0-9]+ floats checked \\(slice [0-9] of "
                                         "step [0-9]\\)"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ThreadedJob,
    ::testing::Values(Case{"LocalOneSlice", "local", 1}, Case{"LocalFiveSlices", "local", 5},
                      Case{"IpcFourSlices", "ipc", 4},
                      Case{"IpcThreeSlicesIn16Bits", "ipc", 3, config::Cluster::BF16}),
    [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace muster::testing
