#include "cli/job/repeat.h"

#include <fmt/core.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/error.h"

namespace muster {
namespace {

double TestAccuracy(const events::Summary& summary) {
  return summary.test().has_accuracy() ? summary.test().accuracy() : NAN;
}
double BestAccuracy(const events::Summary& summary) {
  return summary.has_best_test_accuracy() ? summary.best_test_accuracy() : NAN;
}
double ImagesPerSecond(const events::Summary& summary) {
  return summary.measured().has_images_per_second() ? summary.measured().images_per_second() : NAN;
}

// It came to its end; with kFailure not all of it could be written down.
bool IsCompleted(const RepeatedRun& run) {
  return run.exit_code == 0 || (run.exit_code == static_cast<int>(ExitCode::kFailure) &&
                                run.summary && run.summary->end() == events::Summary::COMPLETED);
}

std::string ResultText(const RepeatedRun& run) {
  if (run.exit_code == 0) return "completed";
  return fmt::format("{}exit code {}", IsCompleted(run) ? "completed, " : "", run.exit_code);
}

// A number of each completed run; NaN where it has none.
Spread SpreadOfCompleted(std::span<const RepeatedRun> runs,
                         double (*number)(const events::Summary&)) {
  std::vector<double> values;
  for (const RepeatedRun& run : runs) {
    if (IsCompleted(run)) values.push_back(run.summary ? number(*run.summary) : NAN);
  }
  return SpreadOf(values);
}

nlohmann::ordered_json SpreadJson(const Spread& spread) {
  // A number that is not finite becomes null.
  return {{"runs", spread.count}, {"mean", spread.mean}, {"deviation", spread.deviation}};
}

// Under the keys of metrics.jsonl.
void PutSummary(nlohmann::ordered_json& json, const events::Summary& summary) {
  if (summary.has_steps()) json["steps"] = summary.steps();
  if (summary.test().has_accuracy()) json["test_accuracy"] = summary.test().accuracy();
  if (summary.has_best_test_accuracy()) json["best_test_accuracy"] = summary.best_test_accuracy();
  if (summary.has_best_step()) json["best_step"] = summary.best_step();
  if (summary.test().has_loss()) json["test_loss"] = summary.test().loss();
  if (summary.measured().has_images_per_second()) {
    json["images_per_second"] = summary.measured().images_per_second();
  }
  json["stopped_early"] = !summary.stop_reason().empty();
  json["weights_hash"] = summary.weights_hash();
}

std::string SpreadText(const Spread& spread, const std::function<std::string(double)>& format) {
  if (spread.count == 0) return "-";
  if (spread.count == 1) return format(spread.mean) + " (one run: no deviation)";
  return fmt::format("{} ± {} ({} runs)", format(spread.mean), format(spread.deviation),
                     spread.count);
}

std::string Percent(double share) { return FormatPercent(share, 2); }
std::string Speed(double speed) { return FormatRate(speed); }

}  // namespace

Spread SpreadOf(std::span<const double> values) {
  Spread spread{0, NAN, NAN};
  double sum = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++spread.count;
  }
  if (spread.count == 0) return spread;
  const double n = static_cast<double>(spread.count);
  spread.mean = sum / n;
  if (spread.count == 1) return spread;
  double squares = 0;
  for (const double value : values) {
    if (std::isfinite(value)) squares += (value - spread.mean) * (value - spread.mean);
  }
  spread.deviation = std::sqrt(squares / (n - 1));
  return spread;
}

std::vector<std::string> RepeatLines(std::span<const RepeatedRun> runs) {
  TextTable table({{"seed", true},
                   {"test accuracy", true},
                   {"best", true},
                   {"images/s", true},
                   {"steps", true},
                   {"result"},
                   {"run directory"}});
  for (const RepeatedRun& run : runs) {
    const events::Summary summary = run.summary.value_or(events::Summary());
    table.AddRow({std::to_string(run.seed), Percent(TestAccuracy(summary)),
                  Percent(BestAccuracy(summary)), Speed(ImagesPerSecond(summary)),
                  summary.has_steps() ? FormatCount(summary.steps()) : "-", ResultText(run),
                  run.dir});
  }
  std::vector<std::string> lines = table.Lines();
  lines.push_back("");
  lines.push_back("  test accuracy  " + SpreadText(SpreadOfCompleted(runs, TestAccuracy), Percent));
  lines.push_back("  images/s       " +
                  SpreadText(SpreadOfCompleted(runs, ImagesPerSecond), Speed));
  return lines;
}

std::string RepeatJson(std::span<const RepeatedRun> runs) {
  nlohmann::ordered_json json;
  json["runs"] = nlohmann::ordered_json::array();
  for (const RepeatedRun& run : runs) {
    nlohmann::ordered_json one{
        {"seed", run.seed}, {"run_dir", run.dir}, {"exit_code", run.exit_code}};
    if (run.summary) PutSummary(one, *run.summary);
    json["runs"].push_back(std::move(one));
  }
  json["test_accuracy"] = SpreadJson(SpreadOfCompleted(runs, TestAccuracy));
  json["images_per_second"] = SpreadJson(SpreadOfCompleted(runs, ImagesPerSecond));
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace muster
