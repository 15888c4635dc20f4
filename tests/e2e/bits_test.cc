// Every way to run a job gives the same bits. Also checks the files that a run leaves.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

class Bits : public RealJob {
 protected:
  // Completes a run and returns the hash of the final weights.
  std::string HashOf(const std::vector<std::string>& settings) {
    const Outcome outcome = Succeeded(Launch(settings));
    EXPECT_EQ(outcome.hash().size(), 16u);
    return outcome.hash();
  }
};

TEST_F(Bits, OfTwoRunsAndOfARelaunchAreTheSame) {
  const Outcome first = Succeeded(Launch({}));
  EXPECT_EQ(HashOf({}), first.hash());
  const Outcome again = Launch({}, Path("run0/config.txtpb"));
  EXPECT_EQ(again.hash(), first.hash()) << again.log;
  EXPECT_EQ(again.metrics.back()["test_loss"], first.metrics.back()["test_loss"]);
  EXPECT_EQ(again.metrics.back()["test_accuracy"], first.metrics.back()["test_accuracy"]);
  // The comparison can fail.
  EXPECT_NE(HashOf({"run.seed=2"}), first.hash());
  EXPECT_NE(HashOf({"run.slices=3"}), first.hash());
}

// With fewer samples than slices some slices are empty, and some workers have only empty ones.
TEST_F(Bits, OfBatchesSmallerThanTheirSlices) {
  const std::vector<std::string> settings{"run.global_batch=3", "run.steps=20",
                                          "evaluation.every_epochs=0"};
  const auto with = [&](const std::string& workers) {
    std::vector<std::string> all = settings;
    all.push_back("cluster.workers=" + workers);
    return HashOf(all);
  };
  const std::string hash = with("1");
  EXPECT_EQ(with("2"), hash);
  EXPECT_EQ(with("4"), hash);
}

TEST_F(Bits, DoNotDependOnHowTheJobIsRun) {
  const std::string hash = HashOf({});
  for (const char* const setting :
       {"cluster.workers=1", "cluster.workers=3", "cluster.workers=4", "cluster.transport=IPC",
        "cluster.transport=TCP", "cluster.transport=LOCAL", "server.threads=1", "server.threads=4",
        "server.instruction_set=SCALAR", "cluster.chunk_bytes=1048576",
        "worker.check_gradients=true", "data.prefetch_threads=3", "data.prefetch_batches=1"}) {
    EXPECT_EQ(HashOf({setting}), hash) << setting;
  }
}

// On other processors the workers warn, and the bits are those of FP32.
TEST_F(Bits, OfBfloat16DoNotDependOnTheWorkersEither) {
  const Outcome one = Succeeded(Launch({"worker.precision=BF16", "cluster.workers=1"}));
  EXPECT_EQ(HashOf({"worker.precision=BF16", "cluster.workers=3", "cluster.transport=TCP"}),
            one.hash());
  const std::string log = Slurp(Path("run0/worker-0.log"));
  const Outcome refused = Launch({"worker.precision=BF16", "worker.soft_placement=false",
                                  "worker.devices=cpu", "run.steps=1"});
  if (__builtin_cpu_supports("avx512bf16")) {
    EXPECT_NE(HashOf({}), one.hash());
    EXPECT_EQ(refused.exit_code, 0) << refused.log;
  } else {
    EXPECT_EQ(HashOf({}), one.hash());
    EXPECT_THAT(log, ::testing::HasSubstr("no AVX512-BF16"));
    EXPECT_NE(refused.exit_code, 0) << refused.log;
  }
}

TEST_F(Bits, OneSliceAndSeveralAgreeToRounding) {
  const std::vector<std::string> one{"cluster.workers=1", "run.slices=1", "run.steps=3"};
  const std::vector<std::string> four{"cluster.workers=2", "run.slices=4", "run.steps=3"};
  const Outcome a = Succeeded(Launch(one)), b = Succeeded(Launch(four));
  const double loss = a.metrics.back()["test_loss"];
  EXPECT_NEAR(b.metrics.back()["test_loss"], loss, 1e-4 * loss);
  EXPECT_NE(a.hash(), b.hash());
}

// The effect of rounding on the wire: weights are off by a relative error of up to 2^-9 (BF16) or
// 2^-12 (FP16). This changes the losses slightly but does not accumulate.
TEST_F(Bits, SixteenBitsOnTheWireKeepTheCurve) {
  const auto curve = [&](const std::string& type) {
    const Outcome outcome = Succeeded(
        Launch({"run.epochs=12", "evaluation.every_epochs=0", "cluster.wire_dtype=" + type}));
    std::vector<double> losses;
    for (const nlohmann::json& line : outcome.metrics) {
      if (line.contains("train_loss") && !line.value("final", false)) {
        losses.push_back(line["train_loss"]);
      }
    }
    return losses;
  };
  const std::vector<double> exact = curve("FP32");
  ASSERT_GT(exact.size(), 30u);
  EXPECT_LT(exact.back(), 0.8 * exact.front()) << "the loss should fall";
  for (const auto& [type, bound] : {std::pair{"BF16", 0.01}, {"FP16", 0.002}}) {
    const std::vector<double> rounded = curve(type);
    ASSERT_EQ(rounded.size(), exact.size());
    double furthest = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      furthest = std::max(furthest, std::abs(rounded[i] - exact[i]) / exact[i]);
    }
    EXPECT_LT(furthest, bound) << type;
    EXPECT_GT(furthest, 0) << type << " rounded nothing";
  }
}

TEST_F(Bits, ARunLeavesItsMetricsConfigAndLogs) {
  const Outcome outcome = Succeeded(Launch({}));
  size_t evaluations = 0;
  for (const nlohmann::json& line : outcome.metrics) {
    for (const char* key : {"time", "elapsed_s", "step", "samples", "epoch", "train_loss",
                            "learning_rate", "images_per_second", "step_ms"}) {
      EXPECT_TRUE(line.contains(key)) << key << " in " << line;
    }
    if (line.contains("test_accuracy") && !line.contains("final")) {
      ++evaluations;
      EXPECT_TRUE(line.contains("test_loss"));
    }
  }
  EXPECT_EQ(evaluations, 2u);  // one per epoch
  const nlohmann::json& last = outcome.metrics.back();
  EXPECT_EQ(last["final"], true);
  EXPECT_EQ(last["reason"], "completed");
  EXPECT_EQ(last["step"], 12);  // 300 samples in batches of 50, twice
  EXPECT_EQ(last["samples"], 600);
  for (const char* file : {"config.txtpb", "server.log", "worker-0.log", "worker-1.log"}) {
    EXPECT_TRUE(std::filesystem::exists(Path("run0") / file)) << file;
  }
}

}  // namespace
}  // namespace muster::testing
