#include "cli/view/runs_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/text/console.h"
#include "cli/text/fitted_table.h"
#include "cli/text/units.h"
#include "common/base/utf8.h"

namespace muster {
namespace {

constexpr const char* kUnknown = "-";

template <typename T>
std::string Known(const std::optional<T>& value, const std::function<std::string(T)>& text) {
  return value ? text(*value) : kUnknown;
}

std::string Accuracy(const std::optional<double>& share) {
  return Known<double>(share, [](double value) { return FormatPercent(value, 2); });
}

std::string Steps(const RunRecord& run) {
  const auto count = [](int64_t steps) { return FormatCount(steps); };
  std::string text = Known<int64_t>(run.steps, count);
  const bool short_of = run.total_steps && run.total_steps != run.steps;
  return short_of ? text + "/" + FormatCount(*run.total_steps) : text;
}

// A run with restarts is marked.
std::string State(const RunRecord& run) {
  if (run.server_restarts == 0) return StateName(run.state);
  return fmt::format("{}, {}", StateName(run.state), Plural(run.server_restarts, "restart"));
}

struct RunColumn {
  int rank;  // the one with the largest is the first to go
  TextTable::Column column;
  std::function<std::string(const RunRecord&)> cell;
};

const std::vector<RunColumn>& Columns() {
  static const std::vector<RunColumn> columns{
      {0, {"run", false}, [](const RunRecord& run) { return run.name; }},
      {1, {"state", false}, State},
      {2, {"accuracy", true}, [](const RunRecord& run) { return Accuracy(run.test_accuracy); }},
      {9, {"best", true}, [](const RunRecord& run) { return Accuracy(run.best_test_accuracy); }},
      {6,
       {"loss", true},
       [](const RunRecord& run) {
         return Known<double>(run.train_loss,
                              [](double loss) { return fmt::format("{:.3f}", loss); });
       }},
      {5, {"steps", true}, Steps},
      {3,
       {"time", true},
       [](const RunRecord& run) { return Known<double>(run.elapsed_s, FormatDuration); }},
      {7,
       {"images/s", true},
       [](const RunRecord& run) { return Known<double>(run.images_per_second, FormatRate); }},
      {10,
       {"workers", true},
       [](const RunRecord& run) {
         return Known<int64_t>(run.workers, [](int64_t workers) { return FormatCount(workers); });
       }},
      {8,
       {"began", false},
       [](const RunRecord& run) { return run.began.empty() ? kUnknown : run.began; }},
      {4,
       {"weights hash", false},
       [](const RunRecord& run) { return run.weights_hash.empty() ? kUnknown : run.weights_hash; }},
  };
  return columns;
}

template <typename T>
nlohmann::ordered_json OrNull(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

std::vector<std::string> RunsTable(const std::vector<RunRecord>& runs, int width) {
  std::vector<FittedColumn> columns;
  for (const RunColumn& column : Columns()) {
    FittedColumn& fitted = columns.emplace_back(FittedColumn{column.rank, column.column, {}});
    for (const RunRecord& run : runs) fitted.cells.push_back(Shown(column.cell(run)));
  }
  return FittedTable(columns, width);
}

std::string RunsJson(const std::vector<RunRecord>& runs) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const RunRecord& run : runs) {
    all.push_back({{"run", run.name},
                   {"dir", run.dir},
                   {"state", StateName(run.state)},
                   {"server_restarts", run.server_restarts},
                   {"began", run.began},
                   {"steps", OrNull(run.steps)},
                   {"total_steps", OrNull(run.total_steps)},
                   {"elapsed_s", OrNull(run.elapsed_s)},
                   {"train_loss", OrNull(run.train_loss)},
                   {"test_accuracy", OrNull(run.test_accuracy)},
                   {"best_test_accuracy", OrNull(run.best_test_accuracy)},
                   {"images_per_second", OrNull(run.images_per_second)},
                   {"workers", OrNull(run.workers)},
                   {"weights_hash", run.weights_hash}});
  }
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

int ListRuns(const std::string& dir, bool json) {
  std::vector<std::string> troubles;
  const std::vector<RunRecord> runs = FindRuns(dir, troubles);
  for (const std::string& trouble : troubles) {
    PrintError(fmt::format("muster: warning: {}: this run is left out\n", trouble));
  }
  if (json) {
    PrintResultAsIs(RunsJson(runs));
    return 0;
  }
  if (runs.empty()) {
    PrintResult("no runs in " + dir);
    return 0;
  }
  const Console console(STDOUT_FILENO);
  const int width = console.is_terminal() ? console.Width() : std::numeric_limits<int>::max();
  PrintResult(RunsTable(runs, width));
  return 0;
}

}  // namespace muster
