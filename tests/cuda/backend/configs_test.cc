// Runs every config of configs/ with --devices auto, each worker on a software GPU, and without
// GPUs.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/base/paths.h"
#include "tests/cli/text/unwrapped.h"
#include "tests/cuda/backend/card_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> ConfigNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(ConfigPath(""))) {
    if (entry.path().extension() == ".txtpb") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// MNIST's format: big-endian 32-bit header numbers, then bytes.
void WriteIdx(const fs::path& path, const std::vector<uint32_t>& header, size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  for (const uint32_t number : header) {
    for (int shift = 24; shift >= 0; shift -= 8) file.put(static_cast<char>(number >> shift));
  }
  for (size_t i = 0; i < bytes; ++i) file.put(static_cast<char>(i * 7 % 10));
}

void WriteMnist(const fs::path& folder) {
  for (const char* const set : {"train", "t10k"}) {
    WriteIdx(folder / fmt::format("{}-images-idx3-ubyte", set), {0x803, 40, 28, 28}, 40 * 28 * 28);
    WriteIdx(folder / fmt::format("{}-labels-idx1-ubyte", set), {0x801, 40}, 40);
  }
}

class ConfigOnCards : public CardJob {
 protected:
  // Uses small batches. Two steps are enough to use updated weights.
  Outcome Train(const std::string& config, int steps, const std::vector<std::string>& more) {
    std::vector<std::string> words{"launch",
                                   ConfigPath(config + ".txtpb"),
                                   "--run-dir",
                                   Path("run"),
                                   "--workers",
                                   "2",
                                   "--steps",
                                   std::to_string(steps),
                                   "--log-placement",
                                   "--set",
                                   "run.global_batch=2",
                                   "--slices",
                                   "2",
                                   "--set",
                                   "evaluation.every_epochs=0",
                                   "--set",
                                   "evaluation.skip_final=true"};
    if (config.starts_with("cifar") || config.find("mnist") != std::string::npos) {
      words.insert(words.end(), {"--data", Path("data")});
    }
    if (config.starts_with("imagefolder") || config.starts_with("cats_vs_dogs")) {
      for (const char* setting : {"data.format=SYNTHETIC", "data.preprocess.crop_height=32",
                                  "data.preprocess.crop_width=32", "run.global_batch=16"}) {
        words.insert(words.end(), {"--set", setting});
      }
    }
    words.emplace_back("--from-scratch");  // without weights that are downloaded or computed first
    if (config.starts_with("tabular")) {
      words.insert(words.end(), {"--set", "data.format=SYNTHETIC"});
    }
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.begin(), "muster");
    Process job(words, Path("log"));
    Outcome outcome{.exit_code = job.Wait(550), .log = job.Log(), .metrics = Metrics("run")};
    EXPECT_EQ(outcome.exit_code, 0) << outcome.log;
    EXPECT_EQ(outcome.hash().size(), 16u);
    return outcome;
  }
};

class CudaConfigsTest : public ConfigOnCards, public ::testing::WithParamInterface<std::string> {};

TEST_P(CudaConfigsTest, RunsOnCardsThatItTakes) {
  WriteMnist(Path("data"));
  Cards(2);
  const Outcome outcome =
      Train(GetParam(), 2, {"--devices", "auto", "--set", "worker.soft_placement=false"});
  EXPECT_THAT(outcome.log,
              AllOf(HasSubstr("locked for this job"), ContainsRegex(" 0 +.* GPU 0 "),
                    ContainsRegex(" 1 +.* GPU 1 "), Not(HasSubstr("on the CPU")),
                    ContainsRegex("\nComputing on .*\\(sm_90, 2 SMs\\), CUDA .*cuBLAS .*, "
                                  "FP32, convolutions cuDNN 9")));
  EXPECT_GT(outcome.metrics.at(0).value("gpu_memory_mb", 0.0), 0.01);
}

TEST_F(ConfigOnCards, MetricsHaveTheSensorsOfEachWorkersCard) {
  Cards(2);
  const Outcome outcome = Train("smoke", 150, {"--devices", "auto"});
  const auto& line = outcome.metrics.back();  // of the whole run: the first reading takes a while
  EXPECT_EQ(line.value("gpu_temperature_c", 0), 50) << "the hottest";
  EXPECT_EQ(line.value("gpu_power_w", 0), 150);
  EXPECT_NEAR(line.value("gpu_utilization", 0.0), 0.02, 1e-9);
}

TEST_F(ConfigOnCards, ADriverThatHangsInItsSensorsHoldsNothingUp) {
  Cards(2, /*lost=*/-1, /*sensors_hang=*/true);
  const Outcome outcome = Train("smoke", 1, {"--devices", "auto"});
  EXPECT_THAT(outcome.log, ContainsRegex(" 1 +.* GPU 1 "));
  EXPECT_FALSE(outcome.metrics.at(0).contains("gpu_temperature_c"));
  EXPECT_TRUE(NothingLeft(5));
}

TEST_F(ConfigOnCards, RunsOnTheCpuWhereThereIsNoCard) {
  const Outcome outcome = Train("smoke", 1, {"--devices", "auto"});
  EXPECT_THAT(
      Unwrapped(outcome.log),
      HasSubstr("--devices auto: the NVIDIA driver has no GPUs: the workers compute on the CPU"));
  EXPECT_THAT(outcome.log, ContainsRegex(" 0 +.* cpu "));
  EXPECT_FALSE(outcome.metrics.at(0).contains("gpu_memory_mb"));
  EXPECT_FALSE(outcome.metrics.at(0).contains("gpu_utilization"));
}

TEST_F(ConfigOnCards, RunsOnTheCpuWhereCudaFindsNone) {
  ::setenv("MUSTER_SOFTWARE_GPU", "devices=0", 1);
  const Outcome outcome = Train("smoke", 1, {"--set", "worker.backend=CUDA"});
  ::unsetenv("MUSTER_SOFTWARE_GPU");
  EXPECT_THAT(outcome.log, HasSubstr("Warning: worker.backend=CUDA, but all workers compute on the "
                                     "CPU with oneDNN"));
  std::ifstream file(Path("run") / "worker-0.log");
  const std::string log(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(log, HasSubstr("(worker.soft_placement): CUDA finds no usable GPU"));
  EXPECT_THAT(Unwrapped(outcome.log), Not(HasSubstr("more GPUs")));
}

// If the job's GPU fails or has too little memory, the job neither trains on the CPU with the GPU
// locked nor retries ten times.
class FailsAtTheStartTest : public CardJob {
 protected:
  // The launcher's error for a job with one worker.
  std::string ErrorOf(const std::string& fault, const std::vector<std::string>& more) {
    const std::string run = fmt::format("run{}", runs_++);
    std::vector<std::string> words{
        "muster", "launch", ConfigPath("smoke.txtpb"), "--workers", "1", "--run-dir", Path(run)};
    words.insert(words.end(), more.begin(), more.end());
    ::setenv("MUSTER_SOFTWARE_GPU", fault.c_str(), 1);
    Process job(words, Path("log"));
    EXPECT_EQ(job.Wait(60), 1) << job.Log();
    ::unsetenv("MUSTER_SOFTWARE_GPU");
    const std::string log = Slurp(Path(run) / "worker-0.log");
    EXPECT_NE(log.find("error: "), std::string::npos) << log;
    EXPECT_EQ(log.find("error: "), log.rfind("error: ")) << log;
    return Unwrapped(job.Log());
  }

 private:
  int runs_ = 0;
};

TEST_F(FailsAtTheStartTest, AGpuOfItsOwnThatDoesNotWork) {
  Cards(3);
  for (const char* const fault : {"fail=cudaSetDevice:1:46", "fail=cudaStreamCreateWithFlags:1:46",
                                  "fail=cudaMalloc:1:999", "devices=0"}) {
    EXPECT_THAT(ErrorOf(fault, {"--devices", "auto"}),
                AllOf(HasSubstr("another GPU than " + Uuid(0)), HasSubstr("--devices cpu")))
        << fault;
  }
}

TEST_F(FailsAtTheStartTest, TooLittleMemory) {
  EXPECT_THAT(ErrorOf("memory_bytes=20000000", {"--set", "worker.backend=CUDA"}),
              HasSubstr("out of memory: "));
  // Enough memory to join, too little for the later buffers.
  EXPECT_THAT(ErrorOf("memory_bytes=35000000", {"--set", "worker.backend=CUDA"}),
              HasSubstr("out of memory: "));
  // Half of the required memory is too little for one of two workers.
  EXPECT_THAT(ErrorOf("memory_bytes=60000000",
                      {"--set", "worker.backend=CUDA", "--set", "worker.workers_per_gpu=2"}),
              HasSubstr("worker.workers_per_gpu) and it holds 0.0 MB"));
}

INSTANTIATE_TEST_SUITE_P(All, CudaConfigsTest, ::testing::ValuesIn(ConfigNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace muster::testing
