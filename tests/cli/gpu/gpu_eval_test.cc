// `muster eval --devices`: one worker on one GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/gpu/gpu_job_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class EvaluationOnACardTest : public GpuJobTest {
 protected:
  EvaluationOnACardTest() {
    const std::string header =
        R"({"product.weight":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]}})";
    std::ofstream(Path("weights.safetensors"))
        << static_cast<char>(header.size()) << std::string(7, '\0') << header
        << std::string(32, '\0');
    Worker(0, std::string("dump:asked;touch:here-0;until:go;print:") +
                  R"({"block":0,"samples":4,"loss":2,"correct":1,"metrics":[4],)" +
                  R"("labels":[0,0,1,1],"predicted":[0,1,0,0]};exit:0)");
    IdleCards(2);
  }
  // Sets the run's model and the worker section of its config.
  void Network(const std::string& worker) {
    std::ofstream(Path("network.txtpb")) << R"(
      run { epochs: 1 global_batch: 8 }
      data { format: SYNTHETIC synthetic { height: 2 width: 2 channels: 1 classes: 2 test_samples: 4 } }
      model {
        layer { name: "flat" flatten {} }
        layer { name: "product" dense { units: 2 use_bias: false } }
        layer { name: "loss" softmax_cross_entropy {} }
      }
      optimizer { type: SGD }
      learning_rate { base: 0.1 }
      worker { )" << worker << " }\n";
  }
  Finished End(Job& job) {
    std::ofstream(Path("go")).flush();
    return job.Finish();
  }
  std::vector<std::string> Words(const std::string& devices) const {
    return {"eval",     Path("weights.safetensors"),
            "--config", Path("network.txtpb"),
            "--json",   "--devices",
            devices};
  }
};

TEST_F(EvaluationOnACardTest, TakesOneGpu) {
  Network(R"(backend: CUDA workers_per_gpu: 2 devices: "0,1")");
  Job job;
  Start(job, Words("1"));
  ASSERT_TRUE(Appears("here-0")) << job.OutSoFar();
  EXPECT_EQ(VariableOf(WorkerPid(0), "CUDA_VISIBLE_DEVICES"), Uuid(1));
  EXPECT_TRUE(AreIdle(1));
  EXPECT_FALSE(AreIdle(2));
  const Finished finished = End(job);
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr(R"("test_loss": 0.5,)"), HasSubstr(R"("test_accuracy": 0.25,)")));
  const Finished refused = Run(Words("auto:2"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--devices auto:2: expected one GPU"));
}

// The run's config may say so only by default.
TEST_F(EvaluationOnACardTest, AlsoWhereTheRunHasComputedOnTheCpu) {
  Network("backend: CPU soft_placement: true");
  Job job;
  Start(job, Words("0"));
  ASSERT_TRUE(Appears("here-0")) << job.OutSoFar();
  EXPECT_EQ(VariableOf(WorkerPid(0), "CUDA_VISIBLE_DEVICES"), Uuid(0));
  EXPECT_EQ(End(job).exit_code, 0);
  EXPECT_THAT(ReadFile(Path("asked")),
              AllOf(HasSubstr("backend: CUDA"), HasSubstr("soft_placement: false")));
}

TEST_F(EvaluationOnACardTest, SaysBesideTheResultThatNothingComputesOnIt) {
  Network("soft_placement: true");
  std::ofstream(Path("go")).flush();
  std::filesystem::remove(Path("libmuster_cuda.so"));
  const Finished finished = Run(Words("auto"));
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("this build has no CUDA backend"));
  EXPECT_THAT(finished.out, StartsWith("{"));
}

}  // namespace
}  // namespace muster::testing
