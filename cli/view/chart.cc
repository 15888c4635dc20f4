#include "cli/view/chart.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/view/axis.h"

namespace muster {
namespace {

constexpr double kLeft = 58, kRight = 14, kTop = 30, kBottom = 40;
constexpr const char* kGrid = "#dddddd";

struct Bounds {
  Point low, high;
};

// And not so large that a difference, or a place in the picture, would be infinite.
bool CanBeShown(const Point& point) {
  constexpr double kMost = 1e30;
  return std::abs(point.x) < kMost && std::abs(point.y) < kMost;
}

std::optional<Bounds> BoundsOf(const Chart& chart) {
  std::optional<Bounds> bounds;
  for (const Curve& curve : chart.curves) {
    for (const Point& point : curve.points) {
      if (!CanBeShown(point)) continue;
      if (!bounds) bounds = {point, point};
      bounds->low = {std::min(bounds->low.x, point.x), std::min(bounds->low.y, point.y)};
      bounds->high = {std::max(bounds->high.x, point.x), std::max(bounds->high.y, point.y)};
    }
  }
  return bounds;
}

// Where values lie in the picture.
struct Frame {
  Axis x, y;
  Point corner, size;

  Point Place(const Point& value) const {
    return {corner.x + size.x * x.At(value.x), corner.y + size.y * (1 - y.At(value.y))};
  }
};

void DrawAxes(const Frame& frame, Svg& svg) {
  const Stroke grid{.color = kGrid};
  const double left = frame.corner.x, right = left + frame.size.x;
  const double top = frame.corner.y, bottom = top + frame.size.y;
  for (const double tick : frame.y.ticks) {
    const double y = frame.Place({frame.x.low, tick}).y;
    svg.AddLine({{left, y}, {right, y}}, grid);
    svg.AddText({left - 6, y + 4}, TickText(frame.y, tick), {.size = 11, .anchor = Anchor::kEnd});
  }
  for (const double tick : frame.x.ticks) {
    const double x = frame.Place({tick, frame.y.low}).x;
    svg.AddLine({{x, bottom}, {x, bottom + 4}}, {.color = "#888888"});
    svg.AddText({x, bottom + 17}, TickText(frame.x, tick), {.size = 11, .anchor = Anchor::kMiddle});
  }
  svg.AddLine({{left, top}, {left, bottom}, {right, bottom}}, {.color = "#888888"});
}

void DrawCurve(const Frame& frame, const Curve& curve, Svg& svg) {
  std::vector<Point> piece;
  const auto end_piece = [&] {
    if (piece.size() > 1) {
      svg.AddLine(piece, {.color = curve.color, .width = 1.8, .opacity = curve.opacity});
    }
    if (piece.size() == 1 && !curve.dots) svg.AddDot(piece[0], 2, curve.color);
    piece.clear();
  };
  for (const Point& value : curve.points) {
    if (!CanBeShown(value)) {
      end_piece();
      continue;
    }
    piece.push_back(frame.Place(value));
    if (curve.dots) svg.AddDot(piece.back(), 3, curve.color);
  }
  end_piece();
}

}  // namespace

void DrawChart(const Chart& chart, Point corner, Point size, Svg& svg) {
  const Point inner{corner.x + kLeft, corner.y + kTop};
  const Point inner_size{size.x - kLeft - kRight, size.y - kTop - kBottom};
  svg.AddText({inner.x, corner.y + 19}, chart.title, {.size = 14, .color = "#000000"});
  svg.AddText({inner.x + inner_size.x, corner.y + size.y - 6}, chart.x_title,
              {.size = 11, .anchor = Anchor::kEnd});
  const std::optional<Bounds> bounds = BoundsOf(chart);
  if (!bounds) {
    svg.AddText({inner.x + inner_size.x / 2, inner.y + inner_size.y / 2}, "no data",
                {.anchor = Anchor::kMiddle, .color = "#888888"});
    return;
  }
  const double low = chart.from_zero ? std::min(0.0, bounds->low.y) : bounds->low.y;
  Frame frame{.x = RoundAxis(bounds->low.x, bounds->high.x, 6),
              .y = RoundAxis(low, bounds->high.y, 5),
              .corner = inner,
              .size = inner_size};
  DrawAxes(frame, svg);
  for (const Curve& curve : chart.curves) DrawCurve(frame, curve, svg);
}

}  // namespace muster
