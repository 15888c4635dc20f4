#include "cli/evaluate/eval_text.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/text.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

const ConfusionCounts kCounts{{3, 1, 0}, {0, 0, 2}, {0, 0, 0}};

TEST(Confusion, EachClass) {
  const auto lines = ConfusionLines(kCounts, {"cat", "", "dog"}, true);
  const std::string text = Join(lines, "\n");
  EXPECT_THAT(text, AllOf(HasSubstr("0 cat"), HasSubstr("75.0 %    100.0 %  1 (1)"),
                          HasSubstr("0.0 %      0.0 %  2 dog (2)")));
  EXPECT_THAT(text,
              AllOf(HasSubstr("confusions:\n  1 mistaken for dog: 2\n  cat mistaken for 1: 1\n"),
                    HasSubstr("label / predicted  0  1  2")));
  // The last class has no images, so it has no recall.
  EXPECT_THAT(text, HasSubstr("2 dog        0      0       -      0.0 %  -"));
}

TEST(Confusion, OfManyClassesTheWorstComeFirst) {
  constexpr size_t kClasses = 30;
  ConfusionCounts counts(kClasses, std::vector<int64_t>(kClasses));
  std::vector<std::string> names;
  for (size_t c = 0; c < kClasses; ++c) {
    counts[c][c] = 100;
    names.push_back("a class with a name that is much too long for a table " + std::to_string(c));
  }
  counts[20] = std::vector<int64_t>(kClasses);  // has no images
  counts[7][8] = 100;
  counts[5][9] = 300;
  const std::vector<std::string> few = ConfusionLines(counts, names, false);
  EXPECT_THAT(few[0], HasSubstr("the 12 of 30 classes with the lowest recall"));
  EXPECT_THAT(few[3], AllOf(StartsWith("  5 a class with"), HasSubstr("25.0 %")));
  EXPECT_THAT(few[4], AllOf(StartsWith("  7 a class with"), HasSubstr("50.0 %")));
  EXPECT_THAT(few[5], StartsWith("  0 a class with"));
  EXPECT_THAT(Join(few, "\n"), AllOf(HasSubstr("too long for a table 5 mistaken for"),
                                     Not(HasSubstr("label / predicted"))));
  const std::vector<std::string> all = ConfusionLines(counts, names, true);
  EXPECT_GT(all.size(), few.size());
  EXPECT_THAT(all[22], AllOf(StartsWith("  20 a class with"), HasSubstr("-")));
  for (const auto& lines : {few, all}) EXPECT_THAT(lines, Each(SizeIs(Le(80))));
}

TEST(Confusion, NamesMayBeOfAnyLanguage) {
  const std::string text =
      Join(ConfusionLines({{1, 2}, {0, 3}}, {"\xd0\xba\xd0\xbe\xd1\x82", "\xe7\x8a\xac\x1b"}, true),
           "\n");
  EXPECT_THAT(text,
              AllOf(HasSubstr("  \xd0\xba\xd0\xbe\xd1\x82 mistaken for \xe7\x8a\xac\\x1b: 2\n"),
                    HasSubstr("\n  -------- "),  // 犬 is two columns wide
                    HasSubstr("\n  0 \xd0\xba\xd0\xbe\xd1\x82           3 "),
                    HasSubstr("\n  1 \xe7\x8a\xac\\x1b        3 ")));
}

TEST(Confusion, NamesOfClasses) {
  EXPECT_EQ(ClassName(1, {"cat", "dog"}), "dog");
  EXPECT_EQ(ClassName(2, {"cat", "dog"}), "2");
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
  EXPECT_THAT(Join(EvaluationLines(report), "\n"), HasSubstr("identical"));
  report.reported->loss = 0.3;
  report.scores.metrics["top 5"] = {9, 10};
  EXPECT_EQ(nlohmann::json::parse(EvaluationJson(report))["test_top5_accuracy"], 0.9);
  EXPECT_THAT(Join(EvaluationLines(report), "\n"),
              AllOf(HasSubstr("accuracy 0.3, loss 0.3; "), HasSubstr("test top 5     90.00 %"),
                    Not(HasSubstr("identical"))));
  EXPECT_EQ(nlohmann::json::parse(EvaluationJson(report))["same_as_reported"], false);
}

TEST(EvalText, ClassesInJson) {
  EvaluationReport report = Report();
  report.class_names = {"cat", "bird", "dog"};
  report.confusion = kCounts;
  auto json = nlohmann::json::parse(EvaluationJson(report));
  EXPECT_EQ(json["classes"][1]["name"], "bird");
  EXPECT_EQ(json["classes"][0]["recall"], 0.75);
  EXPECT_EQ(json["classes"][0]["precision"], 1);
  EXPECT_TRUE(json["classes"][2]["recall"].is_null());
  EXPECT_FALSE(json.contains("confusion_matrix"));
  report.all_classes = true;
  json = nlohmann::json::parse(EvaluationJson(report));
  EXPECT_EQ(json["confusion_matrix"][1][2], 2);
}

TEST(EvalText, ALossThatIsNotFinite) {
  EvaluationReport report = Report();
  report.scores.loss = INFINITY;
  report.reported = report.scores;
  EXPECT_THAT(Join(EvaluationLines(report), "\n"),
              AllOf(HasSubstr("test loss      inf\n"), HasSubstr("identical"),
                    HasSubstr("samples count as wrong")));
  EXPECT_TRUE(nlohmann::json::parse(EvaluationJson(report))["test_loss"].is_null());
  report.scores.loss = report.reported->loss = NAN;
  EXPECT_THAT(Join(EvaluationLines(report), "\n"),
              AllOf(HasSubstr("test loss      nan\n"), HasSubstr("identical")));
  report.reported->loss = 0.5;
  EXPECT_THAT(Join(EvaluationLines(report), "\n"), Not(HasSubstr("identical")));
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
