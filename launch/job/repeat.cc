#include "launch/job/repeat.h"

#include <fmt/core.h>

#include <cmath>
#include <functional>

#include "launch/job/server_event.h"
#include "launch/text/text_table.h"
#include "launch/text/units.h"

namespace muster {
namespace {

// A number of the summary of each completed run; NaN where it has none.
std::vector<double> Completed(std::span<const RepeatedRun> runs, const char* key) {
  std::vector<double> values;
  for (const RepeatedRun& run : runs) {
    if (run.exit_code == 0) values.push_back(Number(run.summary, key));
  }
  return values;
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
    const int64_t steps = Whole(run.summary, "steps");
    table.AddRow(
        {std::to_string(run.seed), Percent(Number(run.summary, "test_accuracy")),
         Percent(Number(run.summary, "best_test_accuracy")),
         Speed(Number(run.summary, "images_per_second")), steps < 0 ? "-" : FormatCount(steps),
         run.exit_code == 0 ? "completed" : fmt::format("exit code {}", run.exit_code), run.dir});
  }
  std::vector<std::string> lines = table.Lines();
  const auto spread = [&](const char* key) { return SpreadOf(Completed(runs, key)); };
  lines.push_back("");
  lines.push_back("  test accuracy  " + SpreadText(spread("test_accuracy"), Percent));
  lines.push_back("  images/s       " + SpreadText(spread("images_per_second"), Speed));
  return lines;
}

std::string RepeatJson(std::span<const RepeatedRun> runs) {
  nlohmann::ordered_json json;
  json["runs"] = nlohmann::ordered_json::array();
  for (const RepeatedRun& run : runs) {
    nlohmann::ordered_json one{
        {"seed", run.seed}, {"run_dir", run.dir}, {"exit_code", run.exit_code}};
    for (const char* key : {"steps", "test_accuracy", "best_test_accuracy", "best_step",
                            "test_loss", "images_per_second", "stopped_early", "weights_hash"}) {
      if (run.summary.is_object() && run.summary.contains(key)) one[key] = run.summary[key];
    }
    json["runs"].push_back(std::move(one));
  }
  for (const char* key : {"test_accuracy", "images_per_second"}) {
    const Spread spread = SpreadOf(Completed(runs, key));
    // A number that is not finite becomes null.
    json[key] = {{"runs", spread.count}, {"mean", spread.mean}, {"deviation", spread.deviation}};
  }
  return json.dump(2) + "\n";
}

}  // namespace muster
