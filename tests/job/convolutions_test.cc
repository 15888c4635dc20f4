// Ready reports the convolution algorithms. The server compares them, and checkpoints store them.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <future>

#include "common/checkpoint/list_checkpoints.h"
#include "tests/job/run_dirs.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ConvolutionsJob : public RunDirs {
 protected:
  static std::unique_ptr<Client> Join(const TestJob& job, uint32_t rank) {
    ClientOptions options = job.OptionsFor(rank);
    options.hello.set_arithmetic("a GPU");
    return std::make_unique<Client>(std::move(options));
  }
  static config::Config Config(uint32_t workers, const std::string& settings = "") {
    return With(SmallConfig(workers, 4), settings);
  }
};

TEST_F(ConvolutionsJob, AnotherChoiceEndsTheRunWithBothLines) {
  TestJob job(Config(2));
  auto second = std::async(std::launch::async, [&] { return Join(job, 1); });
  std::unique_ptr<Client> a = Join(job, 0), b = second.get();
  a->ReportReady("forward cudnn 1");
  b->ReportReady("forward gemm");
  EXPECT_EQ(a->NextOrder().kind, Order::Kind::kStop);
  a.reset();
  b.reset();
  EXPECT_THAT(job.FinishError(),
              AllOf(HasSubstr("\"forward cudnn 1\""), HasSubstr("\"forward gemm\"")));
}

TEST_F(ConvolutionsJob, ACheckpointKeepsThem) {
  const std::string dir = NewRun();
  config::Config config = Config(1);
  config.mutable_run()->set_dir(dir);
  TestJob job(config);
  std::unique_ptr<Client> client = Join(job, 0);
  (void)RunWorker(*client, {.gradient = Rough, .convolutions = "forward cudnn 1"});
  client.reset();
  (void)job.Finish();
  const checkpoint::Arithmetic kept = NewestState(dir).arithmetic();
  ASSERT_EQ(kept.convolutions_size(), 1);
  EXPECT_EQ(kept.convolutions(0), "forward cudnn 1");
}

}  // namespace
}  // namespace muster::testing
