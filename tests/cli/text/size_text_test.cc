#include "cli/text/size_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/job_size.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

config::Config JobOf(uint32_t workers, int64_t batch) {
  config::Config config;
  config.mutable_cluster()->set_workers(workers);
  config.mutable_run()->set_global_batch(batch);
  ResolveJobSize(config, 1);
  return config;
}

TEST(BatchTextTest, BothWays) {
  config::Config config = JobOf(2, 127);
  EXPECT_EQ(BatchText(config),
            "127 images (global_batch) = 2 workers x about 63.5 (batch_per_worker)");
  config.mutable_run()->set_batch_per_worker(64);
  EXPECT_EQ(BatchText(config), "128 images (global_batch) = 2 workers x 64 (batch_per_worker)");
  config.mutable_worker()->add_program("program");
  EXPECT_EQ(BatchText(config), "128 samples (global_batch) = 2 workers x 64 (batch_per_worker)");
}

TEST(SlicesTextTest, SaysWhereWorkersHaveDifferentNumbers) {
  config::Config config = JobOf(4, 256);
  EXPECT_EQ(SlicesText(config), "8 slices");
  config.mutable_cluster()->set_workers(3);
  EXPECT_EQ(SlicesText(config),
            "8 slices, 2 or 3 per worker: workers with fewer wait for the others");
}

TEST(SlicesTextTest, SaysWhatACardLosesBySmallOnes) {
  config::Config config = JobOf(2, 256);
  config.mutable_worker()->set_backend(config::Worker::CUDA);
  EXPECT_EQ(SlicesText(config),
            "8 slices; fewer than 64 samples in a slice leave a GPU partly idle: "
            "run.slices=2 or a batch of 512 would fill it, with other bits");
  config.mutable_run()->set_global_batch(100);
  EXPECT_THAT(SlicesText(config), HasSubstr("partly idle: a batch of 512 would"));
  config.mutable_run()->set_global_batch(512);
  EXPECT_EQ(SlicesText(config), "8 slices");
}

TEST(CoresTextTest, SaysWhatToDoAboutTheOthers) {
  EXPECT_EQ(CoresText(JobOf(2, 256), 2), "");
  EXPECT_EQ(CoresText(JobOf(8, 256), 2), "8 workers x 1 thread share 2 cores");
  EXPECT_EQ(CoresText(JobOf(2, 256), 6),
            "2 of 6 compute; --workers 4 would use 4, with the same bits");
  EXPECT_EQ(CoresText(JobOf(8, 256), 64),
            "8 of 64 compute; 8 slices, so more workers would not be faster: --workers 64 "
            "--slices 64 would use 64, with other bits");
  config::Config scaled = JobOf(2, 256);
  scaled.mutable_learning_rate()->set_scaling(config::LearningRate::LINEAR);
  EXPECT_EQ(CoresText(scaled, 4), "2 of 4 compute; --workers 4 would use 4");
  config::Config gpus = JobOf(2, 256);
  gpus.mutable_worker()->set_backend(config::Worker::CUDA);
  EXPECT_EQ(CoresText(gpus, 6), "") << "GPUs compute, not cores";
}

std::string Bits(const config::Config& config, bool by_hand = false) {
  return Join(BitsTexts(config, by_hand), " ");
}

TEST(BitsTextsTest, NameEverythingThatBitsDependOn) {
  config::Config config = JobOf(2, 256);
  EXPECT_THAT(
      Bits(config),
      AllOf(HasSubstr("the same in every run, and on 1 to 8 workers (run.slices=8) they depend "
                      "on "),
            HasSubstr("run.global_batch=256, run.slices=8, worker.threads=1, "
                      "worker.convolution=AUTO, on the workers' instruction set ("),
            HasSubstr("oneDNN"), Not(HasSubstr("wire_dtype"))));
  config.mutable_cluster()->set_wire_dtype(config::Cluster::BF16);
  config.mutable_worker()->set_convolution(config::Worker::DIRECT);
  EXPECT_THAT(Bits(config, /*by_hand=*/true),
              AllOf(HasSubstr("worker.convolution=DIRECT, cluster.wire_dtype=BF16, "),
                    Not(HasSubstr(" here)"))));
  EXPECT_THAT(Bits(JobOf(1, 15)), HasSubstr("one slice allows one worker"));
}

TEST(BitsTextsTest, OfACardTheyDependOnOtherThings) {
  config::Config config = JobOf(2, 256);
  config.mutable_worker()->set_backend(config::Worker::CUDA);
  config.mutable_worker()->set_precision(config::Worker::BF16);
  EXPECT_THAT(
      Bits(config),
      AllOf(HasSubstr("run.slices=8, worker.precision=BF16, worker.convolution=AUTO, on the "
                      "GPU model, its multiprocessors or MIG partition"),
            HasSubstr("CUDA, cuBLAS, cuDNN and Muster"), Not(HasSubstr("oneDNN")),
            Not(HasSubstr("instruction set")), Not(HasSubstr("worker.threads"))));
  EXPECT_THAT(Bits(config), HasSubstr("the same in every run"));
}

// Settings that make results depend on the number of workers replace the promise of equal bits.
TEST(BitsTextsTest, SayWhatMakesThemFollowTheWorkers) {
  config::Config config = JobOf(2, 256);
  config.mutable_learning_rate()->set_scaling(config::LearningRate::LINEAR);
  EXPECT_THAT(Bits(config), AllOf(HasSubstr("another number gives other bits, because of "
                                            "learning_rate.scaling=LINEAR"),
                                  Not(HasSubstr("on 1 to"))));
  config.mutable_run()->set_batch_per_worker(64);
  EXPECT_THAT(Bits(config), AllOf(HasSubstr("because of run.batch_per_worker "
                                            "(not so with run.global_batch=128)"),
                                  HasSubstr("depend on run.batch_per_worker=64, ")));
}

}  // namespace
}  // namespace muster
