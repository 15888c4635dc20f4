#include "cli/evaluate/eval_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr size_t kMostColumns = 20;                // of all counts
constexpr int64_t kMostImages = int64_t{1} << 40;  // in a place: their sums are numbers, too
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

// What images of this class are most often taken for, wrongly.
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

void AddCounts(const ConfusionCounts& counts, const std::vector<std::string>& names,
               std::vector<std::string>& lines) {
  std::vector<TextTable::Column> columns{{"of / taken for"}};
  for (size_t c = 0; c < counts.size(); ++c) columns.push_back({std::to_string(c), true});
  TextTable table(columns);
  for (size_t label = 0; label < counts.size(); ++label) {
    std::vector<std::string> cells{ClassText(static_cast<int64_t>(label), names)};
    for (const int64_t count : counts[label]) cells.push_back(FormatCount(count));
    table.AddRow(std::move(cells));
  }
  lines.emplace_back();
  for (std::string& line : table.Lines()) lines.push_back(std::move(line));
}

// The numbers of a row, without its name and its total.
std::vector<int64_t> ParseRow(const std::string& line, size_t classes) {
  std::vector<int64_t> row;
  std::istringstream cells(line);
  std::string cell;
  std::getline(cells, cell, ',');
  while (std::getline(cells, cell, ',')) {
    int64_t count = -1;
    const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), count);
    if (error != std::errc() || stop != cell.data() + cell.size() || count < 0 ||
        count > kMostImages) {
      return {};
    }
    row.push_back(count);
  }
  if (row.size() != classes + 1) return {};
  row.pop_back();
  return row;
}

}  // namespace

ConfusionCounts ParseConfusion(const std::string& csv) {
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  const auto commas = static_cast<size_t>(std::ranges::count(line, ','));
  const size_t classes = commas > 1 ? commas - 1 : 0;
  ConfusionCounts counts;
  while (counts.size() < classes && std::getline(lines, line)) {
    counts.push_back(ParseRow(line, classes));
    if (counts.back().empty()) break;
  }
  if (counts.empty() || counts.size() != classes || counts.back().empty()) {
    throw Error(ExitCode::kFailure,
                "confusion_matrix.csv: expected a row of counts for each class, got: {}",
                Printable(line));
  }
  return counts;
}

std::vector<std::string> ConfusionLines(const ConfusionCounts& counts,
                                        const std::vector<std::string>& names) {
  TextTable table({{"class"},
                   {"images", true},
                   {"right", true},
                   {"recall", true},
                   {"precision", true},
                   {"most often taken for"}});
  for (size_t c = 0; c < counts.size(); ++c) {
    const int64_t images = std::reduce(counts[c].begin(), counts[c].end());
    const int64_t right = counts[c][c];
    table.AddRow({ClassText(static_cast<int64_t>(c), names), FormatCount(images),
                  FormatCount(right), Share(right, images), Share(right, TakenFor(counts, c)),
                  Mistake(counts[c], c, names)});
  }
  std::vector<std::string> lines = table.Lines();
  if (counts.size() <= kMostColumns) AddCounts(counts, names, lines);
  return lines;
}

std::string ClassText(int64_t number, const std::vector<std::string>& names) {
  const auto place = static_cast<size_t>(number);
  std::string digits = std::to_string(number);
  if (place >= names.size() || names[place].empty() || names[place] == digits) return digits;
  return fmt::format("{} {}", number, Printable(names[place]));
}

namespace {

using Json = nlohmann::ordered_json;

// Every digit that tells the number from its neighbours.
std::string Exact(const std::optional<double>& number) {
  return number ? fmt::format("{}", *number) : "not finite";
}

bool Same(const Scores& a, const Scores& b) { return a.accuracy == b.accuracy && a.loss == b.loss; }

std::string ComparedText(const EvaluationReport& report) {
  if (!report.reported) return "the run has not evaluated these weights";
  if (Same(report.scores, *report.reported)) return "the same, to the last digit";
  return fmt::format(
      "{}loss {}: other data, or a processor, library or worker.threads that computes other bits",
      report.reported->accuracy ? fmt::format("accuracy {}, ", *report.reported->accuracy) : "",
      Exact(report.reported->loss));
}

std::string Row(const std::string& key, const std::string& value) {
  return fmt::format("  {:<14} {}", key, value);
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json ScoresJson(const std::string& set, const Scores& scores) {
  Json json;
  json[set + "_accuracy"] = OrNull(scores.accuracy);
  if (scores.top5_accuracy) json[set + "_top5_accuracy"] = *scores.top5_accuracy;
  json[set + "_loss"] = OrNull(scores.loss);
  return json;
}

}  // namespace

std::optional<Scores> ReportedScores(const Metadata& metadata, const std::string& set) {
  const Scores scores{
      .accuracy = AccuracyOf(metadata, set), .top5_accuracy = {}, .loss = LossOf(metadata, set)};
  if (!scores.accuracy && !scores.loss) return std::nullopt;
  return scores;
}

std::vector<std::string> EvaluationLines(const EvaluationReport& report) {
  std::string accuracy;
  if (report.scores.accuracy) {
    accuracy =
        fmt::format("{} ({})", FormatPercent(*report.scores.accuracy, 2), *report.scores.accuracy);
  }
  if (report.scores.top5_accuracy) {
    accuracy += ", top 5 " + FormatPercent(*report.scores.top5_accuracy, 2);
  }
  std::vector<std::string> lines{
      report.described,
      Row("data",
          fmt::format("{} of {}", Plural(report.images, report.set + " image"), report.data)),
      Row("workers", fmt::format("{} x {}", FormatCount(int64_t{report.workers}),
                                 Plural(int64_t{report.threads}, "thread")))};
  if (!accuracy.empty()) lines.push_back(Row(report.set + " accuracy", accuracy));
  lines.push_back(Row(report.set + " loss", Exact(report.scores.loss)));
  lines.push_back(Row("as reported", ComparedText(report)));
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
  Json json{{"model", report.model},
            {"step", OrNull(report.step)},
            {"average", report.average},
            {"data", report.data}};
  json[report.set + "_images"] = report.images;
  json["workers"] = report.workers;
  json.update(ScoresJson(report.set, report.scores));
  json["reported"] = report.reported ? ScoresJson(report.set, *report.reported) : Json();
  json["same_as_reported"] = report.reported ? Json(Same(report.scores, *report.reported)) : Json();
  if (report.confusion) {
    json["class_names"] = report.class_names;
    json["confusion_matrix"] = *report.confusion;
  }
  if (!report.csv.empty()) json["csv"] = report.csv;
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace muster
