#include "cli/view/runs_command.h"

#include <fmt/core.h>

#include "cli/text/console.h"
#include "cli/text/json_value.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/json.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr const char* kUnknown = "-";

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

// Returns the cells of a row, in the order of RunsTable's columns.
std::vector<std::string> CellsOf(const RunRecord& run) {
  const auto share = [](double value) { return FormatPercent(value, 2); };
  return {run.name,
          State(run),
          Known(run.accuracy(), share),
          Known(run.choosing(run.latest).best_accuracy, share),
          Known(run.latest.train_loss, [](double loss) { return fmt::format("{:.3f}", loss); }),
          Steps(run),
          Known(run.latest.elapsed_s, [](double seconds) { return FormatDuration(seconds); }),
          Known(run.latest.images_per_second, [](double rate) { return FormatRate(rate); }),
          Known(run.workers, [](int64_t workers) { return FormatCount(workers); }),
          run.began.empty() ? kUnknown : run.began,
          run.weights_hash.empty() ? kUnknown : run.weights_hash};
}

}  // namespace

std::vector<std::string> RunsTable(const std::vector<RunRecord>& runs, int width) {
  TextTable table({{"run"},
                   {"state"},
                   {"accuracy", true, 2},
                   {"best", true, 9},
                   {"loss", true, 6},
                   {"steps", true, 5},
                   {"time", true, 3},
                   {"samples/s", true, 7},
                   {"workers", true, 10},
                   {"began", false, 8},
                   {"weights hash", false, 4}});
  for (const RunRecord& run : runs) {
    std::vector<std::string> cells = CellsOf(run);
    for (std::string& cell : cells) cell = Shown(cell);
    table.AddRow(std::move(cells));
  }
  return table.Lines(width);
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
                               {"weights_hash", run.weights_hash}};
    if (run.validates()) {
      one["validation_loss"] = OrNull(latest.validation.loss);
      one["validation_accuracy"] = OrNull(latest.validation.accuracy);
      one["best_validation_accuracy"] = OrNull(latest.validation.best_accuracy);
    }
    all.push_back(std::move(one));
  }
  return JsonText(all, 2);
}

int ListRuns(const std::string& dir, bool json) {
  std::vector<std::string> troubles;
  const std::vector<RunRecord> runs = FindRuns(dir, troubles);
  for (const std::string& trouble : troubles) {
    PrintError(fmt::format("muster: warning: {}: skipping this run\n", trouble));
  }
  if (json) {
    PrintResultAsIs(RunsJson(runs));
    return 0;
  }
  if (runs.empty()) {
    PrintResult("no runs in " + dir);
    return 0;
  }
  PrintResult(RunsTable(runs, ResultWidth()));
  return 0;
}

}  // namespace muster
