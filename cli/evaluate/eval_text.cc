#include "cli/evaluate/eval_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "cli/text/json_value.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "cli/text/wrapped.h"
#include "common/base/json.h"
#include "common/base/text.h"
#include "common/plan/metrics.h"

namespace muster {
namespace {

constexpr int kTextWidth = 80;
constexpr size_t kLongestName = 32;
constexpr size_t kMostRows = 12;  // rows of classes, unless all are requested
constexpr size_t kMostConfusions = 10;
constexpr const char* kNone = "-";

std::string Share(int64_t part, int64_t of) {
  if (of == 0) return kNone;
  return FormatPercent(static_cast<double>(part) / static_cast<double>(of), 1);
}

int64_t TakenFor(const ConfusionCounts& counts, size_t predicted) {
  int64_t sum = 0;
  for (const std::vector<int64_t>& row : counts) sum += row[predicted];
  return sum;
}

// The class that images of this class are most often mistaken for.
std::string Mistake(const std::vector<int64_t>& row, size_t label,
                    const std::vector<std::string>& names) {
  size_t most = label;
  for (size_t c = 0; c < row.size(); ++c) {
    if (c != label && row[c] > 0 && (most == label || row[c] > row[most])) most = c;
  }
  if (most == label) return kNone;
  return fmt::format("{} ({})", ClassText(static_cast<int64_t>(most), names),
                     FormatCount(row[most]));
}

std::string RowName(size_t label, const std::vector<std::string>& names) {
  std::string name = ClassText(static_cast<int64_t>(label), names);
  if (name.size() > kLongestName) name = OneLine(name, kLongestName);
  return name;
}

// The classes with the lowest recall, in ascending order; classes without images are excluded.
std::vector<size_t> WorstClasses(const ConfusionCounts& counts) {
  std::vector<std::pair<double, size_t>> recalls;
  for (size_t c = 0; c < counts.size(); ++c) {
    const int64_t images = std::reduce(counts[c].begin(), counts[c].end());
    if (images == 0) continue;
    recalls.emplace_back(static_cast<double>(counts[c][c]) / static_cast<double>(images), c);
  }
  std::ranges::sort(recalls);
  recalls.resize(std::min(recalls.size(), kMostRows));
  std::vector<size_t> classes;
  classes.reserve(recalls.size());
  for (const auto& [recall, number] : recalls) classes.push_back(number);
  return classes;
}

void AddClasses(const ConfusionCounts& counts, const std::vector<size_t>& classes,
                const std::vector<std::string>& names, std::vector<std::string>& lines) {
  TextTable table({{"class"},
                   {"samples", true},
                   {"right", true},
                   {"recall", true},
                   {"precision", true},
                   {"most often mistaken for", false, 1}});
  for (const size_t c : classes) {
    const int64_t images = std::reduce(counts[c].begin(), counts[c].end());
    const int64_t right = counts[c][c];
    table.AddRow({RowName(c, names), FormatCount(images), FormatCount(right), Share(right, images),
                  Share(right, TakenFor(counts, c)), Mistake(counts[c], c, names)});
  }
  for (std::string& line : table.Lines(kTextWidth)) lines.push_back(std::move(line));
}

void AddConfusions(const ConfusionCounts& counts, const std::vector<std::string>& names,
                   std::vector<std::string>& lines) {
  struct Confusion {
    int64_t count;
    size_t label, predicted;
  };
  std::vector<Confusion> confusions;
  for (size_t label = 0; label < counts.size(); ++label) {
    for (size_t c = 0; c < counts.size(); ++c) {
      if (c != label && counts[label][c] > 0) confusions.push_back({counts[label][c], label, c});
    }
  }
  if (confusions.empty()) return;
  std::ranges::stable_sort(confusions, std::greater<>(), &Confusion::count);
  confusions.resize(std::min(confusions.size(), kMostConfusions));
  lines.emplace_back();
  lines.emplace_back("  most frequent confusions:");
  for (const Confusion& one : confusions) {
    const std::string text = fmt::format("  {} mistaken for {}: {}", ClassName(one.label, names),
                                         ClassName(one.predicted, names), FormatCount(one.count));
    for (std::string& line : WrappedRow(text, kTextWidth)) lines.push_back(std::move(line));
  }
}

// Adds the confusion matrix if it fits.
void AddCounts(const ConfusionCounts& counts, const std::vector<std::string>& names,
               std::vector<std::string>& lines) {
  std::vector<TextTable::Column> columns{{"label / predicted"}};
  for (size_t c = 0; c < counts.size(); ++c) columns.push_back({std::to_string(c), true});
  TextTable table(columns);
  for (size_t label = 0; label < counts.size(); ++label) {
    std::vector<std::string> cells{RowName(label, names)};
    for (const int64_t count : counts[label]) cells.push_back(std::to_string(count));
    table.AddRow(std::move(cells));
  }
  std::vector<std::string> rows = table.Lines();
  if (rows[1].size() > kTextWidth) return;
  lines.emplace_back();
  for (std::string& line : rows) lines.push_back(std::move(line));
}

}  // namespace

std::vector<std::string> ConfusionLines(const ConfusionCounts& counts,
                                        const std::vector<std::string>& names, bool all) {
  std::vector<std::string> lines;
  std::vector<size_t> classes(counts.size());
  std::iota(classes.begin(), classes.end(), size_t{0});
  if (!all && counts.size() > kMostRows) {
    classes = WorstClasses(counts);
    lines.push_back(fmt::format(
        "  the {} of {} classes with the lowest recall (--confusion shows all):", classes.size(),
        FormatCount(std::ssize(counts))));
  }
  AddClasses(counts, classes, names, lines);
  AddConfusions(counts, names, lines);
  if (all) AddCounts(counts, names, lines);
  return lines;
}

std::string ClassText(int64_t number, const std::vector<std::string>& names) {
  const std::string name = ClassName(static_cast<size_t>(number), names);
  std::string digits = std::to_string(number);
  return name == digits ? digits : fmt::format("{} {}", digits, name);
}

std::string ClassName(size_t number, const std::vector<std::string>& names) {
  const bool named = number < names.size() && !names[number].empty();
  return named ? Shown(names[number]) : std::to_string(number);
}

namespace {

using OrderedJson = nlohmann::ordered_json;

// Prints as many digits as are needed to restore the number exactly.
std::string Exact(const std::optional<double>& number) {
  return number ? fmt::format("{}", *number) : "unknown";
}

bool IsFinite(const Scores& scores) { return scores.loss && std::isfinite(*scores.loss); }

// metrics.jsonl does not tell infinity from NaN.
bool Same(const Scores& a, const Scores& b) {
  const bool same_loss = a.loss == b.loss || (a.loss && b.loss && !IsFinite(a) && !IsFinite(b));
  return a.accuracy == b.accuracy && same_loss;
}

std::string ComparedText(const EvaluationReport& report) {
  if (!report.reported) return "none, it has not evaluated these weights on this set";
  if (Same(report.scores, *report.reported)) return "identical";
  return fmt::format(
      "{}loss {}; data, processor, libraries or worker.threads differ from the run's",
      report.reported->accuracy ? fmt::format("accuracy {}, ", *report.reported->accuracy) : "",
      Exact(report.reported->loss));
}

OrderedJson ScoresJson(const std::string& set, const Scores& scores) {
  OrderedJson json;
  json[set + "_accuracy"] = OrNull(scores.accuracy);
  for (const auto& [name, sum] : scores.metrics)
    json[set + "_" + MetricNamed(name)->Key()] = sum.Mean();
  json[set + "_loss"] = OrNull(scores.loss);
  return json;
}

// Null if `of` is 0.
OrderedJson ShareJson(int64_t part, int64_t of) {
  return of == 0 ? OrderedJson() : OrderedJson(static_cast<double>(part) / static_cast<double>(of));
}

OrderedJson ClassesJson(const ConfusionCounts& counts, const std::vector<std::string>& names) {
  OrderedJson classes = OrderedJson::array();
  for (size_t c = 0; c < counts.size(); ++c) {
    const int64_t images = std::reduce(counts[c].begin(), counts[c].end());
    const int64_t right = counts[c][c];
    OrderedJson one{{"class", c}};
    if (c < names.size()) one["name"] = names[c];
    one["images"] = images;
    one["right"] = right;
    one["recall"] = ShareJson(right, images);
    one["precision"] = ShareJson(right, TakenFor(counts, c));
    classes.push_back(std::move(one));
  }
  return classes;
}

}  // namespace

std::optional<Scores> ReportedScores(const Metadata& metadata, const std::string& set) {
  const Scores scores{.accuracy = AccuracyOf(metadata, set), .loss = LossOf(metadata, set)};
  if (!scores.accuracy && !scores.loss) return std::nullopt;
  return scores;
}

std::vector<std::string> EvaluationLines(const EvaluationReport& report) {
  std::string accuracy;
  if (report.scores.accuracy) {
    accuracy =
        fmt::format("{} ({})", FormatPercent(*report.scores.accuracy, 2), *report.scores.accuracy);
  }
  std::vector<std::string> lines{
      report.described,
      Row("data", fmt::format("{} in {}", Plural(report.images, report.set + " " + report.sample),
                              report.data)),
      Row("workers", fmt::format("{} x {}", FormatCount(int64_t{report.workers}),
                                 Plural(int64_t{report.threads}, "thread")))};
  if (!accuracy.empty()) lines.push_back(Row(report.set + " accuracy", accuracy));
  for (const auto& [name, sum] : report.scores.metrics) {
    const double mean = sum.Mean();
    lines.push_back(Row(report.set + " " + name,
                        MetricNamed(name)->is_share ? FormatPercent(mean, 2) : Exact(mean)));
  }
  lines.push_back(Row(report.set + " loss", Exact(report.scores.loss)));
  lines.push_back(Row("run's result", ComparedText(report)));
  if (!IsFinite(report.scores)) {
    lines.push_back(Row("warning",
                        "outputs or targets of some samples are not finite, or too large: these "
                        "samples count as wrong, and results by class are left out"));
  }
  if (report.confusion) {
    lines.emplace_back();
    for (std::string& line :
         ConfusionLines(*report.confusion, report.class_names, report.all_classes)) {
      lines.push_back(std::move(line));
    }
  }
  if (!report.csv.empty() && IsFinite(report.scores)) {
    lines.emplace_back();
    lines.push_back("wrote " + report.csv);
  }
  return lines;
}

std::string EvaluationJson(const EvaluationReport& report) {
  OrderedJson json{{"model", report.model},
                   {"step", OrNull(report.step)},
                   {"average", report.average},
                   {"data", report.data}};
  json[report.set + "_images"] = report.images;
  json["workers"] = report.workers;
  json.update(ScoresJson(report.set, report.scores));
  json["reported"] = report.reported ? ScoresJson(report.set, *report.reported) : OrderedJson();
  json["same_as_reported"] =
      report.reported ? OrderedJson(Same(report.scores, *report.reported)) : OrderedJson();
  if (report.confusion) json["classes"] = ClassesJson(*report.confusion, report.class_names);
  if (report.confusion && report.all_classes) {
    json["class_names"] = report.class_names;
    json["confusion_matrix"] = *report.confusion;
  }
  if (!report.csv.empty() && IsFinite(report.scores)) json["csv"] = report.csv;
  return JsonText(json, 2);
}

}  // namespace muster
