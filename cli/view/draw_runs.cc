#include "cli/view/draw_runs.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "cli/text/units.h"
#include "cli/view/chart.h"
#include "common/plan/metrics.h"

namespace muster {
namespace {

// Colors that people with color blindness can distinguish (Okabe, Ito 2008).
constexpr std::array kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                "#e69f00", "#56b4e9", "#000000", "#b5a900"};
constexpr double kMargin = 8, kLegendLine = 18;
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

struct PanelKind {
  std::string title;
  std::function<std::optional<double>(const MetricsRow&)> interval;
  std::function<std::optional<double>(const SetScores&)> evaluated;  // null: not measured
  bool from_zero = false;
  bool percent = false;  // values up to 1 are shares
};

PanelKind KindOf(const std::string& name) {
  const auto scalar = [name](const auto& row) {
    const auto found = row.scalars.find(name);
    return found == row.scalars.end() ? std::nullopt : std::optional(found->second);
  };
  if (name == kPanels[0]) return {"loss", &MetricsRow::train_loss, &SetScores::loss, true};
  if (name == kPanels[1]) {  // programs report theirs as a scalar
    const auto interval = [scalar](const MetricsRow& row) {
      return row.train_accuracy ? row.train_accuracy : scalar(row);
    };
    const auto evaluated = [scalar](const SetScores& scores) {
      return scores.accuracy ? scores.accuracy : scalar(scores);
    };
    return {"accuracy, %", interval, evaluated, false, true};
  }
  if (name == kPanels[2]) return {"learning rate", &MetricsRow::learning_rate, nullptr, true};
  if (name == kPanels[3]) {
    return {"samples per second", &MetricsRow::images_per_second, nullptr, true};
  }
  const auto metric = std::ranges::find(kMetrics, name, &Metric::Key);
  if (metric == std::end(kMetrics)) return {name, scalar, scalar};
  const std::string title = std::string(metric->name) + (metric->is_share ? ", %" : "");
  return {title, scalar, scalar, false, metric->is_share};
}

using PointsByStep = std::map<int64_t, Point>;

// Rows of evaluations repeat an interval's numbers.
PointsByStep PointsOf(const RunRecord& run, PlotAxis axis, const PanelKind& kind,
                      bool of_evaluations) {
  PointsByStep points;
  for (const MetricsRow& row : run.rows) {
    const SetScores& scores = run.choosing(row);
    if (of_evaluations ? !scores.loss : row.is_evaluation()) continue;
    const auto value = of_evaluations ? kind.evaluated(scores) : kind.interval(row);
    points[row.step] = {AxisValue(row, axis), value.value_or(NAN)};
  }
  return points;
}

// The mean of the runs, and their range, at the steps that all have.
Curve CurveOf(const std::vector<RunRecord>& runs, PlotAxis axis, const PanelKind& kind,
              bool of_evaluations) {
  std::map<int64_t, std::vector<Point>> found;
  for (const RunRecord& run : runs) {
    for (const auto& [step, point] : PointsOf(run, axis, kind, of_evaluations)) {
      found[step].push_back(point);
    }
  }
  Curve curve{.dots = of_evaluations};
  std::vector<Point> upper;
  for (const auto& [step, points] : found) {
    if (points.size() < runs.size()) continue;
    Point mean{0, 0}, low{0, INFINITY}, high{0, -INFINITY};
    for (const Point& point : points) {
      mean.x += point.x / static_cast<double>(points.size());
      mean.y += point.y / static_cast<double>(points.size());
      low.y = std::min(low.y, point.y);
      high.y = std::max(high.y, point.y);
    }
    curve.points.push_back(mean);
    if (runs.size() == 1 || !std::isfinite(mean.y)) continue;
    curve.band.push_back({mean.x, low.y});
    upper.push_back({mean.x, high.y});
  }
  curve.band.insert(curve.band.end(), upper.rbegin(), upper.rend());
  return curve;
}

double HighestIn(const Chart& chart, double Point::*coordinate) {
  double highest = 0;
  for (const Curve& curve : chart.curves) {
    for (const Point& point : curve.points) {
      if (CanBeShown(point)) highest = std::max(highest, point.*coordinate);
    }
  }
  return highest;
}

bool HasValues(const Curve& curve) { return std::ranges::any_of(curve.points, CanBeShown); }

Chart ChartOf(const std::vector<PlottedRuns>& plotted, PlotAxis axis, const PanelKind& kind) {
  Chart chart{.title = kind.title, .x_title = AxisTitle(axis), .from_zero = kind.from_zero};
  for (const bool of_evaluations : {false, true}) {
    if (of_evaluations && kind.evaluated == nullptr) continue;
    for (size_t i = 0; i < plotted.size(); ++i) {
      chart.curves.push_back(CurveOf(plotted[i].runs, axis, kind, of_evaluations));
      chart.curves.back().color = ColorOf(i);
    }
  }
  // Evaluations are what counts: the training is dashed, and has no bands that would hide theirs.
  const auto evaluations = chart.curves.begin() + static_cast<std::ptrdiff_t>(plotted.size());
  if (std::any_of(evaluations, chart.curves.end(), HasValues)) {
    for (auto curve = chart.curves.begin(); curve != evaluations; ++curve) {
      curve->dashed = true;
      curve->band.clear();
    }
  }
  if (kind.percent && HighestIn(chart, &Point::y) <= 1) {
    for (Curve& curve : chart.curves) {
      for (auto* points : {&curve.points, &curve.band}) {
        for (Point& point : *points) point.y *= 100;
      }
    }
  }
  return chart;
}

std::vector<Chart> ChartsOf(const std::vector<PlottedRuns>& plotted, const PlotLook& look) {
  std::vector<Chart> charts;
  const auto add = [&](const std::string& panel) {
    charts.push_back(ChartOf(plotted, look.axis, KindOf(panel)));
  };
  for (const std::string& panel : look.panels) add(panel);
  if (look.panels.empty()) {
    for (const size_t i : {0, 1, 2}) add(kPanels[i]);
    std::erase_if(charts,
                  [](const Chart& chart) { return std::ranges::none_of(chart.curves, HasValues); });
    if (charts.empty()) add(kPanels[0]);
  }
  double x_high = 0;
  for (const Chart& chart : charts) x_high = std::max(x_high, HighestIn(chart, &Point::x));
  for (Chart& chart : charts) chart.x_high = x_high;
  return charts;
}

// ---------------------------------------------------------------------------------- legend

struct LegendItem {
  std::string text;
  Stroke stroke;
  bool dot = false;
};

std::string LabelOf(const PlottedRuns& plotted) {
  const RunRecord& first = plotted.runs.front();
  const size_t count = plotted.runs.size();
  std::string more;
  const auto add = [&](const std::string& text) { more += (more.empty() ? "" : ", ") + text; };
  if (count > 1) add(fmt::format("n = {}", count));
  if (plotted.label.empty()) {
    if (count == 1 && first.state != RunState::kCompleted) add(StateName(first.state));
    double sum = 0;
    for (const RunRecord& run : plotted.runs) sum += run.accuracy().value_or(NAN);
    if (std::isfinite(100 * sum)) {
      add(fmt::format("{}{:.2f} %", count > 1 ? "mean " : "",
                      100 * sum / static_cast<double>(count)));
    }
  }
  const std::string& name = plotted.label.empty() ? plotted.name : plotted.label;
  return more.empty() ? name : name + " (" + more + ")";
}

// What the lines of a panel mean.
std::vector<LegendItem> KeyOf(const std::vector<PlottedRuns>& plotted) {
  constexpr const char* kGrey = "#555555";
  bool validates = false, tests = false, ranges = false;
  for (const PlottedRuns& one : plotted) {
    ranges = ranges || one.runs.size() > 1;
    for (const RunRecord& run : one.runs) {
      (run.validates() ? validates : tests) |= run.best() != nullptr;
    }
  }
  const bool evaluates = validates || tests;
  const Stroke training{.color = kGrey, .width = evaluates ? 1.2 : 1.8, .dashed = evaluates};
  std::vector<LegendItem> key{{"training, means since the point before", training}};
  if (evaluates) {
    key.push_back({!tests      ? "validation"
                   : validates ? "validation or test"
                               : "test",
                   {.color = kGrey, .width = 1.8},
                   true});
  }
  if (ranges) {
    key.push_back({"mean, min to max of n seeds", {.color = kGrey, .width = 9, .opacity = 0.2}});
  }
  return key;
}

// Draws the items side by side, as far as they fit, and returns where the next line begins.
double DrawItems(const std::vector<LegendItem>& items, double width, double top, Svg& svg) {
  constexpr double kSample = 24, kCharacter = 6.6, kGap = 14;
  double x = kMargin, y = top + 13;
  for (const LegendItem& item : items) {
    const auto characters = std::ranges::count_if(
        item.text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
    const double needed = kSample + 6 + kCharacter * static_cast<double>(characters);
    if (x > kMargin && x + needed > width) {
      x = kMargin;
      y += kLegendLine;
    }
    svg.AddLine({{x, y - 4}, {x + kSample, y - 4}}, item.stroke);
    if (item.dot) svg.AddDot({x + kSample / 2, y - 4}, 2.5, item.stroke.color);
    svg.AddText({x + kSample + 6, y}, item.text, {.size = 11.5, .color = "#000000"});
    x += needed + kGap;
  }
  return items.empty() ? top : y - 13 + kLegendLine;
}

double DrawLegend(const std::vector<PlottedRuns>& plotted, const PlotLook& look, Svg& svg) {
  double top = kMargin;
  if (!look.title.empty()) {
    svg.AddText({look.width / 2, top + 14}, look.title,
                {.size = 14, .anchor = Anchor::kMiddle, .color = "#000000", .bold = true});
    top += 24;
  }
  std::vector<LegendItem> items;
  for (size_t i = 0; i < std::min(plotted.size(), kMostInLegend); ++i) {
    items.push_back({LabelOf(plotted[i]), {.color = ColorOf(i), .width = 3}});
  }
  top = DrawItems(items, look.width, top, svg);
  if (plotted.size() > kMostInLegend) {
    svg.AddText({kMargin, top + 13},
                fmt::format("and {} more, with repeated colors", plotted.size() - kMostInLegend),
                {.size = 11.5, .color = "#666666"});
    top += kLegendLine;
  }
  return DrawItems(KeyOf(plotted), look.width, top, svg) + 4;
}

}  // namespace

std::string DrawPlot(const std::vector<PlottedRuns>& plotted, const PlotLook& look) {
  const std::vector<Chart> charts = ChartsOf(plotted, look);
  constexpr double kLeast = 280;  // the width of a panel
  const size_t most =
      std::clamp<size_t>(static_cast<size_t>(look.width / kLeast), 1, charts.size());
  const size_t rows = (charts.size() + most - 1) / most;
  const size_t columns = (charts.size() + rows - 1) / rows;
  Point size{(look.width - 2 * kMargin) / static_cast<double>(columns), 0};
  size.y = std::clamp(0.62 * size.x, 150.0, 360.0);
  Svg unused({0, 0});
  const double top = DrawLegend(plotted, look, unused);
  Svg svg({look.width, top + size.y * static_cast<double>(rows) + kMargin});
  DrawLegend(plotted, look, svg);
  for (size_t i = 0; i < charts.size(); ++i) {
    const size_t row = i / columns;
    DrawChart(charts[i],
              {kMargin + size.x * static_cast<double>(i % columns),
               top + size.y * static_cast<double>(row)},
              size, svg);
  }
  return svg.Finish();
}

std::string DrawRuns(const std::vector<RunRecord>& runs, PlotAxis axis) {
  std::vector<PlottedRuns> plotted;
  plotted.reserve(runs.size());
  for (const RunRecord& run : runs) plotted.push_back({run.name, {run}});
  return DrawPlot(plotted, {.axis = axis});
}

std::set<std::string> ScalarNames(const RunRecord& run) {
  std::set<std::string> names;
  for (const MetricsRow& row : run.rows) {
    for (const auto* scalars : {&row.scalars, &row.test.scalars, &row.validation.scalars}) {
      for (const auto& [name, value] : *scalars) names.insert(name);
    }
  }
  return names;
}

}  // namespace muster
