// Whole trainings on the software GPU: real processes, which load the plugin as they would load the
// one for real GPUs.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

#include "tests/cli/text/unwrapped.h"
#include "tests/cuda/backend/host_fuses.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CudaJob : public RealJob {
 protected:
  Outcome OnCards(std::vector<std::string> settings) {
    settings.insert(settings.begin(), {"worker.backend=CUDA", "worker.soft_placement=false"});
    return Launch(settings);
  }
  // Trains three steps, half an epoch, and returns the hash. More steps would cover nothing new.
  std::string HashOf(std::vector<std::string> settings) {
    settings.push_back("run.steps=3");
    const Outcome outcome = Succeeded(OnCards(settings));
    EXPECT_EQ(outcome.hash().size(), 16u);
    return outcome.hash();
  }
  // The predicted GPU memory of a worker of the job in this run directory.
  std::map<std::string, double> PredictedOnCard(const std::filesystem::path& dir) {
    Process worker({"muster-worker", "memory", "--rank", "0", "--config", dir / "config.txtpb"},
                   Path("memory"));
    EXPECT_EQ(worker.Wait(60), 0) << worker.Log();
    std::map<std::string, double> rows;
    std::istringstream lines(worker.Log());
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("{")) continue;
      const auto row = nlohmann::json::parse(line);
      if (row["holder"] == "card") rows[row["what"]] = row["bytes"];
    }
    return rows;
  }
  static std::string LogOf(const std::filesystem::path& dir, int rank = 0) {
    std::ifstream file(dir / fmt::format("worker-{}.log", rank));
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

// The bits depend only on the slices, the precision and the convolution algorithms.
TEST_F(CudaJob, HasTheSameBitsOnAnyNumberOfWorkersOverAnyTransport) {
  const std::string hash = HashOf({"cluster.workers=1"});
  EXPECT_EQ(HashOf({"cluster.workers=2"}), hash);
  EXPECT_THAT(LogOf(Path("run1"), 0), HasSubstr("convolutions: forward "));
  EXPECT_THAT(LogOf(Path("run1"), 1), HasSubstr("convolutions: forward "));
  ::setenv("MUSTER_SOFTWARE_GPU", "devices=3", 1);  // worker 3 shares the first one
  EXPECT_EQ(HashOf({"cluster.workers=4"}), hash);
  ::unsetenv("MUSTER_SOFTWARE_GPU");
  EXPECT_EQ(HashOf({"cluster.workers=2", "cluster.transport=TCP"}), hash);
  EXPECT_EQ(HashOf({"cluster.workers=2", "cluster.transport=IPC"}), hash);
  EXPECT_NE(HashOf({"cluster.workers=2", "worker.precision=BF16"}), hash);
}

// Long enough for graphs of each input and each copy of the weights, and for two epochs, between
// which dropout draws other numbers.
TEST_F(CudaJob, HasTheSameBitsWithoutGraphs) {
  for (const char* const precision : {"worker.precision=FP32", "worker.precision=BF16"}) {
    std::string hash;
    for (const char* const graphs : {"worker.cuda_graphs=true", "worker.cuda_graphs=false"}) {
      const Outcome outcome =
          Succeeded(OnCards({"cluster.workers=2", "run.steps=12", graphs, precision}));
      if (hash.empty()) hash = outcome.hash();
      EXPECT_EQ(outcome.hash(), hash);
    }
  }
}

// In FP16 the server scales the loss. A killed worker's replacement uses the step's own scale.
TEST_F(CudaJob, InFp16HasTheSameBitsOnAnyNumberOfWorkersAndAfterAKill) {
  const std::string fp16 = "worker.precision=FP16";
  const std::string hash = HashOf({"cluster.workers=1", fp16});
  EXPECT_THAT(LogOf(Path("run0")), HasSubstr(", FP16, convolutions "));
  EXPECT_EQ(HashOf({"cluster.workers=2", fp16}), hash);
  EXPECT_EQ(HashOf({"cluster.workers=4", fp16, "cluster.transport=TCP"}), hash);
  EXPECT_NE(HashOf({"cluster.workers=2", "worker.precision=BF16"}), hash);
  std::vector<std::string> longer{"worker.backend=CUDA", "worker.soft_placement=false",
                                  "cluster.workers=2",   "run.steps=20",
                                  "run.global_batch=10", fp16};
  const std::string undisturbed = Succeeded(Launch(longer)).hash();
  ::setenv("MUSTER_SOFTWARE_GPU", "delay_us=5000", 1);
  const auto job = Start("killed", longer);
  EXPECT_TRUE(Reaches("killed", 3)) << job->Log();
  EXPECT_EQ(::kill(Find("killed", 1), SIGKILL), 0);
  EXPECT_EQ(job->Wait(120), 0) << job->Log();
  ::unsetenv("MUSTER_SOFTWARE_GPU");
  EXPECT_THAT(Unwrapped(job->Log()), HasSubstr("Lost rank 1"));
  const nlohmann::json last = Metrics("killed").back();
  EXPECT_EQ(last["weights_hash"], undisturbed);
  EXPECT_GE(last["loss_scale"].get<double>(), 1);
}

// The bits do not depend on whether the GPU makes the batches, from images in its memory, or the
// host does.
TEST_F(CudaJob, HasTheSameBitsWhereverTheImagesLie) {
  const std::string hash = HashOf({"cluster.workers=2"});
  EXPECT_THAT(LogOf(Path("run0"), 1), AllOf(HasSubstr("the training set is in device memory"),
                                            HasSubstr("the test set is in device memory")));
  // 300 training images, 40 test images. First there is memory for all, but not for a second copy
  // of the training images; then for hardly any.
  const auto predicted = [&] { return PredictedOnCard(Path("run0")); };
  const std::map<std::string, double> rows = predicted();
  const double images = rows.at("images of the data set");
  EXPECT_GT(images, 340 * 3072);
  double all = 0;
  for (const auto& [what, bytes] : rows) all += bytes;
  const auto leave = [](double bytes) {
    ::setenv("MUSTER_SOFTWARE_GPU", fmt::format("memory_bytes={:.0f}", bytes).c_str(), 1);
  };
  leave(all);
  EXPECT_LT(predicted().at("images of the data set"), 100 * 3072);
  EXPECT_EQ(HashOf({"cluster.workers=2"}) == hash, kHostFuses);
  EXPECT_THAT(LogOf(Path("run1"), 1), AllOf(HasSubstr("the training set stays in host memory"),
                                            HasSubstr("the test set is in device memory")));
  leave(all - 0.9 * images);
  EXPECT_EQ(predicted().count("images of the data set"), 0u);
  EXPECT_EQ(HashOf({"cluster.workers=2"}) == hash, kHostFuses);
  EXPECT_THAT(LogOf(Path("run2"), 1), HasSubstr("the test set stays in host memory"));
  ::unsetenv("MUSTER_SOFTWARE_GPU");
}

TEST_F(CudaJob, LearnsWhatTheCpuLearns) {
  const Outcome cpu = Succeeded(Launch({"run.epochs=1"}));
  const Outcome card = Succeeded(OnCards({"run.epochs=1"}));
  EXPECT_NE(card.hash(), cpu.hash());
  EXPECT_NEAR(card.metrics.back()["test_loss"].get<double>(),
              cpu.metrics.back()["test_loss"].get<double>(), 1e-3);
}

TEST_F(CudaJob, WeighsClassesAndMixesSamplesAsTheCpuDoes) {
  const std::vector<std::string> settings{"run.steps=3",
                                          "data.class_weights=[1, 2, 0.5, 1, 0, 3, 1, 1, 1, 1]",
                                          "data.preprocess.mixup_alpha=0.4"};
  const Outcome cpu = Succeeded(Launch(settings)), card = Succeeded(OnCards(settings));
  for (const char* const key : {"train_loss", "test_loss"}) {
    EXPECT_NEAR(card.metrics.back()[key].get<double>(), cpu.metrics.back()[key].get<double>(),
                1e-3);
  }
}

// In BF16 forward passes read copies of the weights, which each step must refresh: with those of
// the first step training would learn nothing. The GPU rounds 16-bit slices as the CPU does.
TEST_F(CudaJob, LearnsInSixteenBits) {
  const auto loss = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.log;
    return outcome.metrics.back()["test_loss"].get<double>();
  };
  const std::vector<std::string> longer{"run.epochs=2"};
  const auto with = [&](const std::string& setting) {
    std::vector<std::string> settings = longer;
    settings.push_back(setting);
    return settings;
  };
  const double before = loss(Launch({"run.epochs=2", "learning_rate.base=1e-9"}));
  const double after = loss(Launch(longer));
  const double bf16 = loss(OnCards(with("worker.precision=BF16")));
  EXPECT_THAT(LogOf(Path("run2")),
              AllOf(HasSubstr("weights cudnn 1"), Not(HasSubstr("weights gemm"))));
  const double wire = loss(Launch(with("cluster.wire_dtype=BF16")));
  const double wire_on_gpu = loss(OnCards(with("cluster.wire_dtype=BF16")));
  const double fp16 = loss(OnCards(with("worker.precision=FP16")));
  EXPECT_GT(before - after, 1);
  EXPECT_NEAR(fp16, after, 0.02);
  EXPECT_NEAR(bf16, after, 0.02);
  EXPECT_NEAR(wire_on_gpu, wire, 1e-3);
}

// A worker page-locks all buffers that it shares with the server and its own, even if the driver
// refuses read-only mappings. The network is small, so buffers would share pages if they were not
// padded to whole pages.
TEST_F(CudaJob, LocksThePagesOfWeightsGradientsAndBatches) {
  const std::vector<std::string> settings{"cluster.workers=2", "optimizer.ema_decay=0.9",
                                          "evaluation.use_ema=true"};
  std::string hash;
  int run = 0;
  const auto expect_locked = [&](const std::string& transport) {
    std::vector<std::string> all = settings;
    all.push_back("cluster.transport=" + transport);
    const std::string got = HashOf(all);
    if (hash.empty()) hash = got;
    EXPECT_EQ(got, hash);
    for (const int rank : {0, 1}) {
      EXPECT_THAT(LogOf(Path(fmt::format("run{}", run)), rank),
                  AllOf(HasSubstr("joined as rank"), Not(HasSubstr("page-locked"))));
    }
    ++run;
  };
  expect_locked("LOCAL");
  expect_locked("IPC");
  ::setenv("MUSTER_SOFTWARE_GPU", "read_only_registration=1", 1);
  expect_locked("LOCAL");
  // If the driver refuses, one line for each kind of memory is logged, and the bits are the same.
  std::string faults = "seed=1";
  for (int nth = 1; nth <= 20; ++nth) faults += fmt::format(",fail=cudaHostRegister:{}:2", nth);
  ::setenv("MUSTER_SOFTWARE_GPU", faults.c_str(), 1);
  EXPECT_EQ(HashOf(settings), hash);
  const std::string log = LogOf(Path(fmt::format("run{}", run)), 1);
  for (const std::string kind : {"weights", "gradients", "batches"}) {
    const std::string line = "cannot page-lock the host memory of " + kind;
    const size_t first = log.find(line);
    EXPECT_NE(first, std::string::npos) << log;
    EXPECT_EQ(log.find(line, first + 1), std::string::npos) << log;
  }
  ::unsetenv("MUSTER_SOFTWARE_GPU");
}

// The job ends before the first step, without a fallback to the CPU.
TEST_F(CudaJob, AGpuThatComputesWronglyEndsTheJob) {
  int runs = 0;
  for (const char* const precision : {"FP32", "BF16", "FP16"}) {
    const std::vector<std::string> settings = {"cluster.workers=1", "run.steps=1",
                                               "worker.convolution=GEMM",
                                               fmt::format("worker.precision={}", precision)};
    const Outcome good = Succeeded(OnCards(settings));
    EXPECT_THAT(LogOf(Path(fmt::format("run{}", runs))),
                HasSubstr("the GPU's results match the CPU's"));
    runs += 2;
    ::setenv("MUSTER_SOFTWARE_GPU", "wrong_products=1", 1);
    const Outcome bad = OnCards(settings);
    ::unsetenv("MUSTER_SOFTWARE_GPU");
    EXPECT_EQ(bad.exit_code, 8) << bad.log;
    EXPECT_THAT(Unwrapped(bad.log),
                AllOf(HasSubstr("wrong result of layer "), HasSubstr("--devices cpu")));
  }
}

// Like a wrong result, this is not retried ten times.
TEST_F(CudaJob, AGpuThatFailsInTheTestBeforeTheFirstStepEndsTheJob) {
  int runs = 0;
  for (const char* const fault :
       {"fail=cublasGemmEx:1:13", "fail=kernel:1:719", "fail=cudnnConvolutionForward:2:5000"}) {
    ::setenv("MUSTER_SOFTWARE_GPU", fault, 1);
    const Outcome bad = Launch({"cluster.workers=1", "run.steps=1", "worker.backend=CUDA"});
    ::unsetenv("MUSTER_SOFTWARE_GPU");
    EXPECT_EQ(bad.exit_code, 8) << bad.log;
    EXPECT_THAT(Unwrapped(bad.log),
                AllOf(HasSubstr("error in layer "), HasSubstr("--devices cpu")));
    const std::string log = LogOf(Path(fmt::format("run{}", runs++))), line = "joining the job";
    EXPECT_EQ(log.find(line), log.rfind(line)) << log;
  }
}

TEST_F(CudaJob, WithoutACardALineSaysSo) {
  ::setenv("MUSTER_SOFTWARE_GPU", "devices=0", 1);
  const Outcome hard = OnCards({});
  EXPECT_EQ(hard.exit_code, 1);
  EXPECT_THAT(hard.log, HasSubstr("CUDA finds no usable GPU"));
  // With soft placement the same job runs and logs the device.
  const Outcome soft = Succeeded(Launch({"worker.backend=CUDA"}));
  ::unsetenv("MUSTER_SOFTWARE_GPU");
}

// A run allocates exactly the GPU memory that the dry run predicted.
TEST_F(CudaJob, UsesTheMemoryThatWasPredicted) {
  int run = 0;
  for (const char* const setting :
       {"cluster.workers=2", "run.slices=4", "worker.precision=BF16", "worker.precision=FP16",
        "evaluation.flip=true", "evaluation.use_ema=true"}) {
    const bool average = std::string_view(setting) == "evaluation.use_ema=true";
    const Outcome outcome =
        Succeeded(OnCards({"cluster.workers=1", "run.steps=2", setting,
                           average ? "optimizer.ema_decay=0.9" : "cluster.transport=TCP"}));
    const std::filesystem::path dir = Path("run" + std::to_string(run++));
    double predicted = 0;
    for (const auto& [what, bytes] : PredictedOnCard(dir)) predicted += bytes;
    EXPECT_THAT(LogOf(dir), HasSubstr(fmt::format(", GPU memory {:.3f} MB", predicted * 1e-6)))
        << setting;
  }
}

// The state is compatible and only the rounding differs, which is logged.
TEST_F(CudaJob, TheCpuTakesUpWhatACardBegan) {
  const Outcome begun =
      Succeeded(OnCards({"run.steps=4", "run.global_batch=20", "checkpoint.every_steps=2"}));
  const Outcome on =
      Succeeded(GoOn("run0", {"--set", "run.steps=8", "--set", "worker.backend=CPU"}));
  EXPECT_EQ(on.metrics.back()["step"].get<int>(), 8);
  EXPECT_THAT(on.log, HasSubstr("worker.backend was CUDA and is now CPU"));
  EXPECT_THAT(Unwrapped(on.log), AllOf(HasSubstr("the workers computed with \"Software GPU"),
                                       HasSubstr("and with \"oneDNN")));
}

TEST_F(CudaJob, TakesUpWhatTheCpuBegan) {
  const Outcome begun =
      Succeeded(Launch({"run.steps=4", "run.global_batch=20", "checkpoint.every_steps=2"}));
  const Outcome on =
      Succeeded(Muster({"launch", "--resume", Path("run0"), "--set", "run.steps=8", "--set",
                        "worker.backend=CUDA", "--set", "worker.soft_placement=false"},
                       "run0"));
  EXPECT_EQ(on.metrics.back()["step"].get<int>(), 8);
}

}  // namespace
}  // namespace muster::testing
