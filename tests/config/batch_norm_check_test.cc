#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/config/build_graph.h"
#include "common/config/config_check.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Check(const StepPlan& plan, const Shape& input = {1, 1, 3}) {
  config::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    layer { name: "norm" batch_norm {} }
    layer { name: "flat" flatten {} }
    layer { name: "loss" softmax_cross_entropy {} })",
                                                            &model));
  try {
    CheckBatchNorms(BuildGraph(model, input), plan);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
}

TEST(BatchNormCheck, EverySliceHasTwoSamples) {
  EXPECT_EQ(Check({.train_samples = 40, .global_batch = 8, .total_steps = 9, .slices = 4}), "");
  EXPECT_THAT(Check({.train_samples = 40, .global_batch = 8, .total_steps = 9, .slices = 5}),
              AllOf(HasSubstr("layer \"norm\""), HasSubstr("a batch of 8 in 5 slices")));
}

TEST(BatchNormCheck, TheRestOfAnEpochToo) {
  // 40 = 4 * 9 + 4: 2 slices have two samples each; 3 slices have one, one and two.
  EXPECT_EQ(Check({.train_samples = 40, .global_batch = 9, .total_steps = 5, .slices = 2}), "");
  const StepPlan thin{.train_samples = 40, .global_batch = 9, .total_steps = 5, .slices = 3};
  EXPECT_THAT(Check(thin), HasSubstr("an epoch's last batch of 4 in 3 slices"));
  StepPlan shorter = thin;
  shorter.total_steps = 4;  // does not reach it
  EXPECT_EQ(Check(shorter), "");
  EXPECT_EQ(Check(thin, {2, 1, 3}), "") << "each sample has two values";
}

TEST(BatchNormCheck, ABatchLargerThanTheTrainingSet) {
  EXPECT_THAT(Check({.train_samples = 3, .global_batch = 8, .total_steps = 1, .slices = 2}),
              HasSubstr("of 3 in 2 slices"));
  EXPECT_EQ(Check({.train_samples = 4, .global_batch = 8, .total_steps = 1, .slices = 2}), "");
}

}  // namespace
}  // namespace muster
