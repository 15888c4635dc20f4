#include "cli/evaluate/eval_text.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cli/text/units.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

// Every digit that tells the number from its neighbours.
std::string Exact(const std::optional<double>& number) {
  return number ? fmt::format("{}", *number) : "not finite";
}

bool Same(const TestScores& a, const TestScores& b) {
  return a.accuracy == b.accuracy && a.loss == b.loss;
}

std::string ComparedText(const EvaluationReport& report) {
  if (!report.reported) return "the run has not evaluated these weights";
  if (Same(report.scores, *report.reported)) return "the same, to the last digit";
  return fmt::format(
      "accuracy {}, loss {}: other data, or a processor, library or worker.threads that computes "
      "other bits",
      Exact(report.reported->accuracy), Exact(report.reported->loss));
}

std::string Row(const char* key, const std::string& value) {
  return fmt::format("  {:<14} {}", key, value);
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json ScoresJson(const TestScores& scores) {
  Json json;
  json["test_accuracy"] = scores.accuracy;
  if (scores.top5_accuracy) json["test_top5_accuracy"] = *scores.top5_accuracy;
  json["test_loss"] = OrNull(scores.loss);
  return json;
}

}  // namespace

std::optional<TestScores> ReportedScores(const Metadata& metadata) {
  const auto accuracy = TestAccuracyOf(metadata);
  if (!accuracy) return std::nullopt;
  return TestScores{.accuracy = *accuracy, .loss = TestLossOf(metadata)};
}

std::vector<std::string> EvaluationLines(const EvaluationReport& report) {
  std::string accuracy = fmt::format("{} ({})", FormatPercent(report.scores.accuracy, 2),
                                     Exact(report.scores.accuracy));
  if (report.scores.top5_accuracy) {
    accuracy += ", top 5 " + FormatPercent(*report.scores.top5_accuracy, 2);
  }
  std::vector<std::string> lines{
      report.described,
      Row("data", fmt::format("{} of {}", Plural(report.images, "test image"), report.data)),
      Row("workers", fmt::format("{} x {}", FormatCount(int64_t{report.workers}),
                                 Plural(int64_t{report.threads}, "thread"))),
      Row("test accuracy", accuracy),
      Row("test loss", Exact(report.scores.loss)),
      Row("as reported", ComparedText(report))};
  if (!report.data_remark.empty()) lines.push_back(Row("note", report.data_remark));
  if (report.confusion) {
    lines.emplace_back();
    for (std::string& line : ConfusionLines(*report.confusion, report.class_names)) {
      lines.push_back(std::move(line));
    }
  }
  if (!report.csv.empty()) {
    lines.emplace_back();
    lines.push_back("counts in " + report.csv);
  }
  return lines;
}

std::string EvaluationJson(const EvaluationReport& report) {
  Json json{{"model", report.model}, {"step", OrNull(report.step)},  {"average", report.average},
            {"data", report.data},   {"test_images", report.images}, {"workers", report.workers}};
  json.update(ScoresJson(report.scores));
  json["reported"] = report.reported ? ScoresJson(*report.reported) : Json();
  json["same_as_reported"] = report.reported ? Json(Same(report.scores, *report.reported)) : Json();
  if (report.confusion) {
    json["class_names"] = report.class_names;
    json["confusion_matrix"] = *report.confusion;
  }
  if (!report.csv.empty()) json["csv"] = report.csv;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace muster
