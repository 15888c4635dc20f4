#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/job/header.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kCard = "NVIDIA H100 (sm_90, 132 SMs), CUDA 13.0, cuBLAS 13.1.0, FP32";
constexpr const char* kCpu = "oneDNN 2.6.0 (AVX512), 1 thread, convolutions AUTO";

events::Started StartedWith(const std::vector<std::string>& arithmetic) {
  events::Started started;
  for (const std::string& text : arithmetic) {
    events::Started::Worker& worker = *started.add_workers();
    worker.set_rank(static_cast<uint32_t>(started.workers_size() - 1));
    worker.set_host("h");
    worker.set_arithmetic(text);
  }
  return started;
}

std::vector<std::string> TextsOf(const std::vector<std::string>& arithmetic) {
  config::Config config;
  config.mutable_worker()->set_backend(config::Worker::CUDA);
  return DeviceTexts(config, StartedWith(arithmetic));
}

TEST(DeviceTextsTest, NameCardsAndLibraries) {
  EXPECT_THAT(TextsOf({kCard, kCard}), ElementsAre("Computing on " + std::string(kCard)));
  EXPECT_THAT(TextsOf({"A100", kCard, kCard}),
              ElementsAre("Computing on A100 (rank 0)",
                          "Computing on " + std::string(kCard) + " (ranks 1 and 2)"));
  EXPECT_THAT(DeviceTexts({}, StartedWith({kCpu})), IsEmpty());  // no GPU was requested
  EXPECT_THAT(TextsOf({""}), IsEmpty());  // a worker that does not report its device
}

TEST(DeviceTextsTest, SayWhoGotNone) {
  EXPECT_THAT(
      TextsOf({kCpu, kCpu}),
      ElementsAre("Warning: worker.backend=CUDA, but all workers compute on the CPU with " +
                  std::string(kCpu) + " (worker.soft_placement); see their logs for the reason"));
  EXPECT_THAT(TextsOf({kCard, kCpu}),
              ElementsAre("Computing on " + std::string(kCard) + " (rank 0)",
                          HasSubstr("rank 1 computes on the CPU with oneDNN")));
}

TEST(DeviceTextsTest, SayWhoComputesInFp32) {
  config::Config config;
  config.mutable_worker()->set_precision(config::Worker::BF16);
  const std::string bf16 = "oneDNN 2.6.0 (AVX-512 BF16) in BF16, 1 thread, convolutions DIRECT";
  EXPECT_THAT(DeviceTexts(config, StartedWith({bf16, bf16})), IsEmpty());
  EXPECT_THAT(DeviceTexts(config, StartedWith({kCpu, kCpu})),
              ElementsAre(HasSubstr("worker.precision=BF16, but all workers compute in FP32")));
  EXPECT_THAT(DeviceTexts(config, StartedWith({bf16, kCpu})),
              ElementsAre(AllOf(HasSubstr("rank 1 computes in FP32"), HasSubstr("The bits"))));
}

// The final advice depends on the actual devices, not on the config.
TEST(DeviceTextsTest, TheWorkersSayWhatTheJobComputedOn) {
  EXPECT_TRUE(AreOnGpus(StartedWith({kCpu, kCard})));
  EXPECT_FALSE(AreOnGpus(StartedWith({kCpu, kCpu})));
  EXPECT_FALSE(AreOnGpus(StartedWith({"", "CPU, torch 2.15"})));
}

TEST(DeviceTextsTest, APlacementShowsWhatAWorkerReallyHas) {
  const std::vector<WorkerPlace> places(2, WorkerPlace{.gpu = {.index = "3"}});
  const auto none = [](pid_t) { return "-"; };
  const auto lines = PlacementLines(StartedWith({kCard, kCpu}), none, places);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[2], HasSubstr("GPU 3"));
  EXPECT_THAT(lines[3], HasSubstr(" cpu "));
  EXPECT_THAT(PlacementLines(StartedWith({kCard}), none)[2], HasSubstr(" GPU "));
}

TEST(PlacementTest, TheKernelSaysWhichCoresAProcessMayUse) {
  EXPECT_THAT(CoresOf(::getpid()), ::testing::MatchesRegex("[0-9,-]+"));
  EXPECT_EQ(CoresOf(-1), "-");
}

TEST(PlacementTest, ATableOfRanks) {
  events::Started started;
  for (const auto& [host, pid] : {std::pair{"a", 42}, std::pair{"b", 4343}}) {
    events::Started::Worker& worker = *started.add_workers();
    worker.set_rank(static_cast<uint32_t>(started.workers_size() - 1));
    worker.set_host(host);
    worker.set_pid(pid);
    worker.set_threads(2);
  }
  EXPECT_THAT(PlacementLines(started, [](pid_t pid) { return pid == 42 ? "0-1" : "-"; }),
              ElementsAre("  rank  host   pid  device  threads  cores",  //
                          "  ----  ----  ----  ------  -------  -----",  //
                          "     0  a       42  cpu           2  0-1",    //
                          "     1  b     4343  cpu           2  -"));
}

}  // namespace
}  // namespace muster
