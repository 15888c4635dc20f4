#include "cli/view/plot_command.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>

#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/view/chart.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

// Colors that people with color blindness can distinguish (Okabe, Ito 2008).
constexpr std::array kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                "#e69f00", "#56b4e9", "#000000", "#b5a900"};
constexpr Point kPlotSize{1040, 720};
constexpr double kMargin = 12, kLegendLine = 18;
constexpr size_t kMostInLegend = 8;

std::string ColorOf(size_t run) { return kColors[run % kColors.size()]; }

double AxisValue(const MetricsRow& row, PlotAxis axis) {
  switch (axis) {
    case PlotAxis::kStep:
      return static_cast<double>(row.step);
    case PlotAxis::kEpoch:
      return row.epoch.value_or(0);
    case PlotAxis::kTime:
      return row.elapsed_s.value_or(0) / 60;
  }
  return 0;
}

const char* AxisTitle(PlotAxis axis) {
  static constexpr std::array kTitles = {"step", "epoch", "minutes"};
  return kTitles[static_cast<size_t>(axis)];
}

struct ChartKind {
  std::string title;
  std::function<std::optional<double>(const MetricsRow&)> interval;
  std::function<std::optional<double>(const SetScores&)> evaluated;  // null: not measured
  double factor;
  bool from_zero;
};

// Rows of evaluations repeat an interval's numbers.
Curve CurveOf(const RunRecord& run, PlotAxis axis, const ChartKind& kind, bool of_evaluations) {
  Curve curve{.dots = of_evaluations};
  for (const MetricsRow& row : run.rows) {
    const SetScores& scores = run.choosing(row);
    if (of_evaluations ? !scores.loss : row.is_evaluation()) continue;
    const auto value = of_evaluations ? kind.evaluated(scores) : kind.interval(row);
    curve.points.push_back({AxisValue(row, axis), kind.factor * value.value_or(NAN)});
  }
  return curve;
}

Chart ChartOf(const std::vector<RunRecord>& runs, PlotAxis axis, const ChartKind& kind) {
  Chart chart{.title = kind.title, .x_title = AxisTitle(axis), .from_zero = kind.from_zero};
  for (const RunRecord& run : runs) chart.curves.push_back(CurveOf(run, axis, kind, false));
  if (kind.evaluated != nullptr) {
    for (Curve& curve : chart.curves) curve.opacity = 0.45;
    for (const RunRecord& run : runs) chart.curves.push_back(CurveOf(run, axis, kind, true));
  }
  for (size_t i = 0; i < chart.curves.size(); ++i) chart.curves[i].color = ColorOf(i % runs.size());
  return chart;
}

std::string LegendText(const RunRecord& run) {
  std::string text = fmt::format("{}  ({}", run.name, StateName(run.state));
  if (const auto accuracy = run.accuracy()) text += fmt::format(", {:.2f} %", 100 * *accuracy);
  return text + ")";
}

// Draws two columns and returns their height.
double DrawLegend(const std::vector<RunRecord>& runs, Svg& svg) {
  const size_t shown = std::min(runs.size(), kMostInLegend);
  for (size_t i = 0; i < shown; ++i) {
    const size_t row = i / 2;
    const double x = kMargin + 20 + (i % 2 == 1 ? kPlotSize.x / 2 : 0);
    const double y = kMargin + 14 + kLegendLine * static_cast<double>(row);
    svg.AddLine({{x, y - 4}, {x + 22, y - 4}}, {.color = ColorOf(i), .width = 3});
    svg.AddText({x + 30, y}, LegendText(runs[i]), {.size = 13, .color = "#000000"});
  }
  const size_t rows = (shown + 1) / 2;
  double height = kMargin + kLegendLine * static_cast<double>(rows);
  if (runs.size() > shown) {
    svg.AddText({kMargin + 20, height + 14},
                fmt::format("and {} more runs, with repeated colors", runs.size() - shown),
                {.size = 12, .color = "#666666"});
    height += kLegendLine;
  }
  return height + 6;
}

}  // namespace

std::string DrawRuns(const std::vector<RunRecord>& runs, PlotAxis axis, const std::string& scalar) {
  std::array<ChartKind, 4> kinds{{
      {"loss (line: training, dots: evaluations)", &MetricsRow::train_loss, &SetScores::loss, 1,
       true},
      {"accuracy, % (line: training, dots: evaluations)", &MetricsRow::train_accuracy,
       &SetScores::accuracy, 100, false},
      {"learning rate", &MetricsRow::learning_rate, nullptr, 1, true},
      {"samples per second", &MetricsRow::images_per_second, nullptr, 1, true},
  }};
  if (!scalar.empty()) {
    const auto find = [&](const auto& row) {
      const auto found = row.scalars.find(scalar);
      return found == row.scalars.end() ? std::nullopt : std::optional(found->second);
    };
    kinds[1] = {scalar + " (line: training, dots: evaluations)", find, find, 1, false};
  }
  Svg svg(kPlotSize);
  const double top = DrawLegend(runs, svg);
  const Point size{(kPlotSize.x - 3 * kMargin) / 2, (kPlotSize.y - top - 2 * kMargin) / 2};
  for (size_t i = 0; i < kinds.size(); ++i) {
    const Point corner{kMargin + (i % 2 == 1 ? size.x + kMargin : 0),
                       top + (i / 2 == 1 ? size.y + kMargin : 0)};
    DrawChart(ChartOf(runs, axis, kinds[i]), corner, size, svg);
  }
  return svg.Finish();
}

namespace {

namespace fs = std::filesystem;

std::string OutputFile(const PlotArguments& arguments) {
  if (arguments.output.empty()) {
    const fs::path folder = arguments.run_dirs.size() == 1 ? arguments.run_dirs[0] : ".";
    return (folder / "plot.svg").lexically_normal();
  }
  if (!arguments.output.ends_with(".svg")) {
    throw Error(ExitCode::kUsage, "--output {}: expected a name that ends in .svg",
                arguments.output);
  }
  return arguments.output;
}

std::set<std::string> ScalarNames(const std::vector<RunRecord>& runs) {
  std::set<std::string> names;
  for (const RunRecord& run : runs) {
    for (const MetricsRow& row : run.rows) {
      for (const auto* scalars : {&row.scalars, &row.test.scalars, &row.validation.scalars}) {
        for (const auto& [name, value] : *scalars) names.insert(name);
      }
    }
  }
  return names;
}

}  // namespace

int PlotRuns(const PlotArguments& arguments) {
  const std::string file = OutputFile(arguments);
  std::vector<RunRecord> runs;
  for (const std::string& dir : arguments.run_dirs) {
    runs.push_back(ReadRun(dir));
    const RunRecord& run = runs.back();
    if (run.rows.empty()) {
      throw Error(ExitCode::kUsage, "{}: nothing to plot: no interval has been logged yet", dir);
    }
    if (run.unreadable_lines > 0) {
      PrintError(fmt::format("muster: warning: {}: {} of its metrics could not be read\n", dir,
                             Plural(run.unreadable_lines, "line")));
    }
  }
  if (const std::set<std::string> names = ScalarNames(runs);
      !arguments.scalar.empty() && !names.contains(arguments.scalar)) {
    throw Error(ExitCode::kUsage, "--scalar {}: no such scalar in these runs; they have: {}",
                arguments.scalar, names.empty() ? "none" : Join(names, ", "));
  }
  WriteFileAtomically(file, DrawRuns(runs, arguments.axis, arguments.scalar));
  PrintResult("wrote " + file);
  return 0;
}

}  // namespace muster
