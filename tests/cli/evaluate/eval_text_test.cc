#include "cli/evaluate/eval_text.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCsv = "label,0,1,2,total\n0,3,1,0,4\n1,0,0,2,2\n2,0,0,0,0\ntotal,3,1,2,6\n";

TEST(Confusion, ReadsWhatTheServerWrites) {
  EXPECT_THAT(ParseConfusion(kCsv),
              ElementsAre(ElementsAre(3, 1, 0), ElementsAre(0, 0, 2), ElementsAre(0, 0, 0)));
  for (const char* const text :
       {"", "label,0,total\n", "label,0,1,total\n0,1,2\n", "label,0,1,total\n0,1,x,1\n1,0,1,1\n",
        "label,0,1,total\n0,1,0,1\n",
        // No set has so many images, and no sum of theirs is a number.
        "label,0,1,total\n0,9000000000000000000,9000000000000000000,1\n1,0,1,1\n"}) {
    EXPECT_THROW((void)ParseConfusion(text), Error) << text;
  }
}

TEST(Confusion, EachClass) {
  const auto lines = ConfusionLines(ParseConfusion(kCsv), {"cat", "", "dog"});
  const std::string text = Join(lines, "\n");
  EXPECT_THAT(text, AllOf(HasSubstr("0 cat"), HasSubstr("75.0 %    100.0 %  1 (1)"),
                          HasSubstr("0.0 %      0.0 %  2 dog (2)")));
  // No image is of the last one: nothing is right or wrong.
  EXPECT_THAT(text, HasSubstr("2 dog       0      0       -      0.0 %  -"));
}

TEST(Confusion, NamesOfClasses) {
  EXPECT_EQ(ClassText(1, {"cat", "dog"}), "1 dog");
  EXPECT_EQ(ClassText(2, {"cat", "dog"}), "2");
  EXPECT_EQ(ClassText(7, {"0", "1", "2", "3", "4", "5", "6", "7"}), "7");
}

EvaluationReport Report() {
  return {.model = "run/model.safetensors",
          .described = "run/model.safetensors, step 3",
          .step = 3,
          .data = "/data",
          .images = 10,
          .workers = 2,
          .threads = 1,
          .scores = {.accuracy = 0.3, .loss = 0.1 + 0.2}};
}

TEST(EvalText, SaysWhetherTheRunReportedTheSame) {
  EvaluationReport report = Report();
  EXPECT_THAT(Join(EvaluationLines(report), "\n"),
              AllOf(HasSubstr("0.30000000000000004"), HasSubstr("has not evaluated")));
  report.reported = Scores{.accuracy = 0.3, .loss = 0.1 + 0.2};
  EXPECT_THAT(Join(EvaluationLines(report), "\n"), HasSubstr("the same, to the last digit"));
  report.reported->loss = 0.3;
  EXPECT_THAT(Join(EvaluationLines(report), "\n"),
              AllOf(HasSubstr("accuracy 0.3, loss 0.3: other data"), Not(HasSubstr("the same"))));
  EXPECT_EQ(nlohmann::json::parse(EvaluationJson(report))["same_as_reported"], false);
}

TEST(EvalText, ALossThatIsNotFinite) {
  EvaluationReport report = Report();
  report.scores.loss.reset();
  EXPECT_THAT(Join(EvaluationLines(report), "\n"), HasSubstr("test loss      not finite"));
  EXPECT_TRUE(nlohmann::json::parse(EvaluationJson(report))["test_loss"].is_null());
}

TEST(EvalText, WhatTheFileSays) {
  EXPECT_FALSE(ReportedScores({}, "test"));
  EXPECT_FALSE(ReportedScores({{"test_accuracy", "high"}}, "test"));
  const auto scores = ReportedScores({{"test_accuracy", "0.5233"}, {"test_loss", "1.25"}}, "test");
  ASSERT_TRUE(scores);
  EXPECT_EQ(scores->accuracy, 0.5233);
  EXPECT_EQ(scores->loss, 1.25);
}

}  // namespace
}  // namespace muster
