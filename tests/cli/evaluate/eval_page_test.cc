#include "cli/evaluate/eval_page.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/text.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Each class has one right sample and one that is taken for the next class.
EvaluationReport ReportOf(size_t classes) {
  EvaluationReport report{.model = "runs/<a>",
                          .described = "a & b",
                          .data = "/data",
                          .images = 10,
                          .scores = {.accuracy = 0.8, .loss = 0.5}};
  ConfusionCounts counts(classes, std::vector<int64_t>(classes));
  for (size_t c = 0; c < classes; ++c) counts[c][c] = counts[c][(c + 1) % classes] = 1;
  report.confusion = counts;
  return report;
}

TEST(EvalPage, WilsonsIntervals) {
  // From the formula in E. B. Wilson (1927), with other software.
  EXPECT_NEAR(WilsonInterval(8, 10).low, 0.4901625, 1e-6);
  EXPECT_NEAR(WilsonInterval(8, 10).high, 0.9433178, 1e-6);
  EXPECT_EQ(WilsonInterval(0, 10).low, 0);
  EXPECT_NEAR(WilsonInterval(0, 10).high, 0.2775328, 1e-6);
  EXPECT_NEAR(WilsonInterval(10, 10).low, 0.7224672, 1e-6);
  EXPECT_EQ(WilsonInterval(10, 10).high, 1);
  EXPECT_THAT(EvaluationHtml({.report = ReportOf(3)}), HasSubstr("49.0 % to 94.3 %"));
}

TEST(EvalPage, HostileNamesAreOnlyText) {
  EvaluationReport report = ReportOf(3);
  report.class_names = {"<script>alert(1)</script>", "\xff\xfe\"><img src=x>", "a&b\x01"};
  const std::string page =
      EvaluationHtml({.report = report,
                      .command = "muster eval '<script>'\xff",
                      .weights_hash = "<script>",
                      .mistakes = {{7, 0, 1, 0.9}, {8, 2, 0, 0.8}},
                      .pictures = {{"data:image/png;base64,AAAA", ""},
                                   {"data:image/png;base64,BBBB", "val/a&b/\"><script>.jpg"}},
                      .curves = "<svg><script>\xff</script></svg>"});
  EXPECT_EQ(Utf8Prefix(page), page.size());
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<img src=x")),
                          Not(HasSubstr("\x01")), HasSubstr("&lt;script&gt;alert(1)"),
                          HasSubstr("runs/&lt;a&gt;"), HasSubstr("a&amp;b"), HasSubstr("sample 7"),
                          Not(HasSubstr("sample 8")), HasSubstr("val/a&amp;b/&quot;")));
  EXPECT_THAT(page, Not(HasSubstr("http")));  // neither links nor files of other places
  EXPECT_EQ(Count(page, "<img "), 3u);        // two mistakes and the curves
}

TEST(EvalPage, TheMatrixFitsTheNumberOfClasses) {
  const std::string few = EvaluationHtml({.report = ReportOf(3)});
  EXPECT_THAT(few, AllOf(HasSubstr("\"m counts\""), Not(HasSubstr("<details>"))));
  EXPECT_EQ(Count(few, "style=\"--a:0.35\""), 6u);  // cells with a half of their row
  const std::string many = EvaluationHtml({.report = ReportOf(100)});
  EXPECT_THAT(many, AllOf(HasSubstr("\"m fine\""), HasSubstr("the other 80")));
  EXPECT_EQ(Count(many, "rowspan=\"10\""), 10u);
  EXPECT_EQ(Count(many, "<td></td>"), 100u * 98u);
  const std::string most = EvaluationHtml({.report = ReportOf(1000)});
  EXPECT_THAT(most, AllOf(Not(HasSubstr("\"m fine\"")), HasSubstr("--confusion-csv"),
                          HasSubstr("Most frequent confusions")));
}

TEST(EvalPage, WithoutPicturesMistakesAreATable) {
  const std::string page = EvaluationHtml({.report = ReportOf(3), .mistakes = {{1234, 0, 1, 0.9}}});
  EXPECT_THAT(page, AllOf(HasSubstr("sample 1234"), HasSubstr("90.0 %"), Not(HasSubstr("<img"))));
}

TEST(EvalPage, ValuesHaveNoClasses) {
  EvaluationReport report = ReportOf(3);
  report.scores.accuracy.reset();
  report.confusion.reset();
  EXPECT_THAT(
      EvaluationHtml({.report = report}),
      AllOf(HasSubstr("0.5<small>"), Not(HasSubstr("Classes")), Not(HasSubstr("accuracy"))));
}

TEST(EvalPage, TheSurestMistakesAreKept) {
  std::vector<SureMistake> mistakes{
      {5, 0, 1, 0.5}, {9, 0, 1, 0.75}, {3, 0, 1, 0.5}, {1, 0, 1, 0.1}};
  KeepSurest(3, mistakes);
  ASSERT_EQ(mistakes.size(), 3u);
  EXPECT_EQ(mistakes[0].sample, 9);
  EXPECT_EQ(mistakes[1].sample, 3);
  EXPECT_EQ(mistakes[2].sample, 5);
}

}  // namespace
}  // namespace muster
