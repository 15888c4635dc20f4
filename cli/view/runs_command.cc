#include "cli/view/runs_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/text/console.h"
#include "cli/text/json_value.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "cli/view/run_settings.h"
#include "common/base/json.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr const char* kUnknown = "-";
constexpr size_t kMostDiffering = 6;  // runs that differ in more settings are not comparable

std::string Known(const auto& value, const auto& text) { return value ? text(*value) : kUnknown; }

std::string Steps(const RunRecord& run) {
  std::string text = Known(run.steps, [](int64_t steps) { return FormatCount(steps); });
  const bool short_of = run.total_steps && run.total_steps != run.steps;
  return short_of ? text + "/" + FormatCount(*run.total_steps) : text;
}

std::string State(const RunRecord& run) {
  if (run.server_restarts == 0) return StateName(run.state);
  return fmt::format("{}, {}", StateName(run.state), Plural(run.server_restarts, "restart"));
}

std::string Differing(const RunRecord& run, size_t most) {
  std::vector<std::string> settings;
  for (const DifferingSetting& one : run.differs) {
    if (one.value) settings.push_back(one.name + "=" + *one.value);
  }
  const std::string text = Shown(Join(settings, " "));
  return text.size() <= most ? text : OneLine(text, most);
}

// Returns the cells of a row, in the order of RunsTable's columns.
std::vector<std::string> CellsOf(const RunRecord& run) {
  const auto share = [](double value) { return FormatPercent(value, 2); };
  return {run.name,
          State(run),
          Known(run.accuracy(), share),
          Known(run.choosing(run.latest).best_accuracy, share),
          Known(run.loss(), [](double loss) { return fmt::format("{:.3f}", loss); }),
          Steps(run),
          Known(run.latest.elapsed_s, [](double seconds) { return FormatDuration(seconds); }),
          Known(run.latest.images_per_second, [](double rate) { return FormatRate(rate); }),
          Known(run.workers, [](int64_t workers) { return FormatCount(workers); }),
          run.began.empty() ? kUnknown : run.began,
          run.weights_hash.empty() ? kUnknown : run.weights_hash};
}

}  // namespace

std::vector<std::string> RunsTable(const std::vector<RunRecord>& runs, int width) {
  // The best of a validation set may be below the accuracy, which is on the test set.
  const auto validating = std::ranges::count_if(runs, &RunRecord::validates);
  const char* const best = validating == 0                  ? "best"
                           : validating == std::ssize(runs) ? "best val."
                                                            : "best val./test";
  std::vector<TextTable::Column> columns{{"run"},
                                         {"state"},
                                         {"accuracy", true, 2},
                                         {best, true, 10},
                                         {"loss", true, 7},
                                         {"steps", true, 6},
                                         {"time", true, 4},
                                         {"samples/s", true, 8},
                                         {"workers", true, 11},
                                         {"began", false, 9},
                                         {"weights hash", false, 5}};
  const size_t settings = runs.empty() ? 0 : runs.front().differs.size();
  const bool differ = settings > 0 && settings <= kMostDiffering;
  if (differ) columns.push_back({"differs", false, 3});
  // Run, state and accuracy are always shown; of the rest, at most half is for "differs".
  size_t shown = 0;
  for (const RunRecord& run : runs)
    shown = std::max(shown, Shown(run.name).size() + State(run).size() + 16);
  const int left = std::min(width / 2, width - static_cast<int>(shown));
  const auto room = static_cast<size_t>(std::max(16, left));
  TextTable table(std::move(columns));
  for (const RunRecord& run : runs) {
    std::vector<std::string> cells = CellsOf(run);
    for (std::string& cell : cells) cell = Shown(cell);
    if (differ) cells.push_back(Differing(run, room));
    table.AddRow(std::move(cells));
  }
  std::vector<std::string> lines = table.Lines(width);
  if (settings > kMostDiffering)
    lines.push_back(fmt::format("These runs differ in {} settings: --json shows them.", settings));
  return lines;
}

std::string RunsJson(const std::vector<RunRecord>& runs) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const RunRecord& run : runs) {
    const RunNumbers& latest = run.latest;
    nlohmann::ordered_json one{{"run", run.name},
                               {"dir", run.dir},
                               {"state", StateName(run.state)},
                               {"server_restarts", run.server_restarts},
                               {"began", run.began},
                               {"steps", OrNull(run.steps)},
                               {"total_steps", OrNull(run.total_steps)},
                               {"elapsed_s", OrNull(latest.elapsed_s)},
                               {"train_loss", OrNull(latest.train_loss)},
                               {"test_loss", OrNull(latest.test.loss)},
                               {"test_accuracy", OrNull(latest.test.accuracy)},
                               {"best_test_accuracy", OrNull(latest.test.best_accuracy)},
                               {"images_per_second", OrNull(latest.images_per_second)},
                               {"workers", OrNull(run.workers)},
                               {"weights_hash", run.weights_hash},
                               {"differs", nlohmann::ordered_json::object()}};
    for (const DifferingSetting& setting : run.differs)
      one["differs"][setting.path] = OrNull(setting.value);
    if (run.validates()) {
      one["validation_loss"] = OrNull(latest.validation.loss);
      one["validation_accuracy"] = OrNull(latest.validation.accuracy);
      one["best_validation_accuracy"] = OrNull(latest.validation.best_accuracy);
    }
    all.push_back(std::move(one));
  }
  return JsonText(all, 2);
}

namespace {

// The lowest number comes first; runs whose number is unknown come last.
struct RunOrder {
  const char* name;
  std::optional<double> (*number)(const RunRecord&);
};

std::optional<double> Negative(const std::optional<double>& number) {
  return number ? std::optional(-*number) : std::nullopt;
}

constexpr RunOrder kOrders[] = {
    {"began", [](const RunRecord&) { return std::optional<double>(); }},  // as they are
    {"accuracy", [](const RunRecord& run) { return Negative(run.accuracy()); }},
    {"best", [](const RunRecord& run) { return Negative(run.choosing(run.latest).best_accuracy); }},
    {"loss", [](const RunRecord& run) { return run.loss(); }},
    {"time", [](const RunRecord& run) { return run.latest.elapsed_s; }},
    {"samples/s", [](const RunRecord& run) { return Negative(run.latest.images_per_second); }}};

}  // namespace

std::vector<std::string> RunOrders() {
  std::vector<std::string> names;
  for (const RunOrder& order : kOrders) names.emplace_back(order.name);
  return names;
}

int ListRuns(const RunsArguments& arguments) {
  const auto& [dir, sort, where, json] = arguments;
  std::vector<std::string> troubles;
  std::vector<RunRecord> runs = FindRuns(dir, troubles);
  CompareSettings(where, runs);
  const RunOrder& order = *std::ranges::find(kOrders, sort, &RunOrder::name);
  std::ranges::stable_sort(runs, {}, [&](const RunRecord& run) {
    const double number = order.number(run).value_or(NAN);
    return std::isnan(number) ? INFINITY : number;
  });
  for (const std::string& trouble : troubles) {
    PrintError(fmt::format("muster: warning: {}: skipping this run\n", trouble));
  }
  if (json) {
    PrintResultAsIs(RunsJson(runs));
    return 0;
  }
  if (runs.empty()) {
    PrintResult(fmt::format("no {} in {}", where.empty() ? "runs" : "such runs", dir));
    return 0;
  }
  PrintResult(RunsTable(runs, ResultWidth()));
  return 0;
}

}  // namespace muster
