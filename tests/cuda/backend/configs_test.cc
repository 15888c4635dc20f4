// Every config of configs/ on cards that a job takes by itself (--devices auto), each worker on a
// software GPU, and without any card.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/cuda/backend/card_job.h"
#include "tests/launch/text/unwrapped.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> ConfigNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(MUSTER_CONFIG_DIR)) {
    if (entry.path().extension() == ".txtpb") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// MNIST's files: numbers of 32 bits, the highest byte first, then bytes.
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

class CudaConfigsTest : public CardJob, public ::testing::WithParamInterface<std::string> {
 protected:
  CudaConfigsTest() { WriteMnist(Path("data")); }

  // With small batches; two steps use the weights of one update.
  Outcome Train(int steps, const std::vector<std::string>& more) {
    std::vector<std::string> words{"launch",
                                   fmt::format("{}/{}.txtpb", MUSTER_CONFIG_DIR, GetParam()),
                                   "--run-dir",
                                   Path("run"),
                                   "--workers",
                                   "2",
                                   "--steps",
                                   std::to_string(steps),
                                   "--log-placement",
                                   "--set",
                                   "run.global_batch=2",
                                   "--set",
                                   "evaluation.every_epochs=0",
                                   "--set",
                                   "evaluation.skip_final=true"};
    if (GetParam().starts_with("cifar") || GetParam().starts_with("mnist")) {
      words.insert(words.end(), {"--data", Path("data")});
    }
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.begin(), "muster");
    Process job(words, Path("log"));
    Outcome outcome{.exit_code = job.Wait(250), .log = job.Log(), .metrics = Metrics("run")};
    EXPECT_EQ(outcome.exit_code, 0) << outcome.log;
    EXPECT_EQ(outcome.hash().size(), 16u);
    return outcome;
  }
};

TEST_P(CudaConfigsTest, RunsOnCardsThatItTakes) {
  Cards(2);
  const Outcome outcome = Train(2, {"--devices", "auto", "--set", "worker.soft_placement=false"});
  EXPECT_THAT(outcome.log,
              AllOf(HasSubstr("locked for this job"), ContainsRegex(" 0 +.* card 0 "),
                    ContainsRegex(" 1 +.* card 1 "), Not(HasSubstr("on the CPU")),
                    ContainsRegex("\nComputing on .*\\(sm_90, 2 SMs\\), CUDA .*cuBLAS .*, "
                                  "FP32, convolutions cuDNN 9")));
}

TEST_P(CudaConfigsTest, RunsOnTheCpuWhereThereIsNoCard) {
  const Outcome outcome = Train(1, {"--devices", "auto"});
  EXPECT_THAT(
      Unwrapped(outcome.log),
      HasSubstr("--devices auto: the NVIDIA driver has no GPUs: the workers compute on the CPU"));
  EXPECT_THAT(outcome.log, ContainsRegex(" 0 +.* cpu "));
}

TEST_P(CudaConfigsTest, RunsOnTheCpuWhereCudaFindsNone) {
  ::setenv("MUSTER_SOFTWARE_GPU", "devices=0", 1);
  const Outcome outcome = Train(1, {"--set", "worker.backend=CUDA"});
  ::unsetenv("MUSTER_SOFTWARE_GPU");
  EXPECT_THAT(outcome.log, HasSubstr("Warning: worker.backend=CUDA, but all workers compute on the "
                                     "CPU, with oneDNN"));
  std::ifstream file(Path("run") / "worker-0.log");
  const std::string log(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(log, HasSubstr("(worker.soft_placement): there is no card that CUDA can use"));
}

// Out of memory at its start: no reason to train on the CPU with the GPU locked.
class OutOfMemoryTest : public CardJob {};
TEST_F(OutOfMemoryTest, AtTheStartIsAnError) {
  ::setenv("MUSTER_SOFTWARE_GPU", "memory_bytes=20000000", 1);
  Process job({"muster", "launch", std::string(MUSTER_CONFIG_DIR) + "/smoke.txtpb", "--workers",
               "1", "--set", "worker.backend=CUDA", "--run-dir", Path("run")},
              Path("log"));
  EXPECT_EQ(job.Wait(60), 1) << job.Log();
  ::unsetenv("MUSTER_SOFTWARE_GPU");
  EXPECT_THAT(job.Log(), HasSubstr("out of memory: "));
}

INSTANTIATE_TEST_SUITE_P(All, CudaConfigsTest, ::testing::ValuesIn(ConfigNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace muster::testing
