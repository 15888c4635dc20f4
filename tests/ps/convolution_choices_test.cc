// Workers with equal hardware and libraries must choose equal convolution algorithms.
#include "ps/run/convolution_choices.h"

#include <gtest/gtest.h>

#include "common/link/protocol.h"

namespace muster {
namespace {

using Chosen = ConvolutionChoices::Taken;

void ExpectGood(const Chosen& taken) { EXPECT_EQ(taken.refusal + taken.warning, ""); }

TEST(ConvolutionChoices, WorkersOfOneArithmeticMustAgree) {
  ConvolutionChoices choices;
  ExpectGood(choices.Take("rank 1", "an H100", "forward cudnn 1"));
  ExpectGood(choices.Take("rank 1", "an H100", "forward cudnn 1"));
  ExpectGood(choices.Take("rank 1", "an A100", "forward gemm"));
  const Chosen other = choices.Take("rank 1", "an H100", "forward gemm");
  EXPECT_NE(other.refusal.find("\"forward gemm\""), std::string::npos);
  EXPECT_NE(other.refusal.find("\"forward cudnn 1\""), std::string::npos);
  ExpectGood(choices.Take("rank 1", "an H100", "forward cudnn 1"));
}

TEST(ConvolutionChoices, TooLongALineIsRefused) {
  ConvolutionChoices choices;
  ExpectGood(choices.Take("rank 1", "an H100", std::string(kMostConvolutionsBytes, 'x')));
  EXPECT_NE(choices.Take("rank 1", "an A100", std::string(kMostConvolutionsBytes + 1, 'x')).refusal,
            "");
  ExpectGood(choices.Take("rank 1", "an A100", "forward gemm"));
}

TEST(ConvolutionChoices, ARunThatGoesOnWithOthersIsWarnedOnce) {
  ConvolutionChoices before;
  ExpectGood(before.Take("rank 1", "an H100", "forward cudnn 1"));
  checkpoint::Arithmetic kept;
  kept.add_worker("a processor");
  kept.add_worker("an H100");
  before.Keep(kept);
  ASSERT_EQ(kept.convolutions_size(), 2);
  EXPECT_EQ(kept.convolutions(0), "");
  EXPECT_EQ(kept.convolutions(1), "forward cudnn 1");

  ConvolutionChoices same;
  same.Restore(kept);
  ExpectGood(same.Take("rank 1", "an H100", "forward cudnn 1"));

  ConvolutionChoices other;
  other.Restore(kept);
  ExpectGood(other.Take("rank 1", "an A100", "forward gemm"));
  const Chosen taken = other.Take("rank 1", "an H100", "forward gemm");
  EXPECT_EQ(taken.refusal, "");
  EXPECT_NE(taken.warning, "");
  ExpectGood(other.Take("rank 1", "an H100", "forward gemm"));
}

// Checkpoints of earlier versions have no choices.
TEST(ConvolutionChoices, WhatACheckpointDoesNotHoldIsNotCompared) {
  checkpoint::Arithmetic kept;
  kept.add_worker("an H100");
  ConvolutionChoices choices;
  choices.Restore(kept);
  ExpectGood(choices.Take("rank 1", "an H100", "forward gemm"));
}

}  // namespace
}  // namespace muster
