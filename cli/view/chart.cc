#include "cli/view/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "common/base/text.h"

namespace muster {
std::string Markup(const std::string& text) {
  std::string markup;
  for (const char c : ValidUtf8(text)) {
    markup += c == '&'                              ? "&amp;"
              : c == '<'                            ? "&lt;"
              : c == '>'                            ? "&gt;"
              : c == '"'                            ? "&quot;"
              : static_cast<unsigned char>(c) < ' ' ? " "
                                                    : std::string(1, c);
  }
  return markup;
}

bool CanBeShown(const Point& point) {
  constexpr double kMost = 1e30;
  return std::abs(point.x) < kMost && std::abs(point.y) < kMost;
}

Svg::Svg(Point size)
    : text_(kSvgBeginning +
            fmt::format("width=\"{0:g}\" height=\"{1:g}\" "
                        "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"DejaVu Sans, Verdana, Arial, "
                        "sans-serif\">\n"
                        "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#ffffff\"/>\n",
                        size.x, size.y)) {}

void Svg::AddLine(const std::vector<Point>& points, const Stroke& stroke) {
  text_ += fmt::format(
      "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{:g}\" stroke-opacity=\"{:g}\" "
      "{}stroke-linejoin=\"round\" points=\"",
      stroke.color, stroke.width, stroke.opacity, stroke.dashed ? "stroke-dasharray=\"4 2\" " : "");
  for (const Point& point : points) text_ += fmt::format("{:.1f},{:.1f} ", point.x, point.y);
  text_ += "\"/>\n";
}

void Svg::AddArea(const std::vector<Point>& points, const std::string& color) {
  text_ += fmt::format("<polygon fill=\"{}\" fill-opacity=\"0.2\" points=\"", color);
  for (const Point& point : points) text_ += fmt::format("{:.1f},{:.1f} ", point.x, point.y);
  text_ += "\"/>\n";
}

void Svg::AddDot(Point center, double radius, const std::string& color) {
  text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:g}\" fill=\"{}\"/>\n", center.x,
                       center.y, radius, color);
}

void Svg::AddText(Point at, const std::string& text, const TextStyle& style) {
  static constexpr std::array kAnchors = {"start", "middle", "end"};
  text_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:g}\" fill=\"{}\" "
      "{}text-anchor=\"{}\">{}</text>\n",
      at.x, at.y, style.size, style.color, style.bold ? "font-weight=\"bold\" " : "",
      kAnchors[static_cast<size_t>(style.anchor)], Markup(text));
}

void Svg::AddImage(Point corner, Point size, const std::string& url) {
  text_ += fmt::format(
      "<image x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" image-rendering=\"pixelated\" "
      "preserveAspectRatio=\"none\" href=\"{}\"/>\n",
      corner.x, corner.y, size.x, size.y, url);
}

std::string Svg::Finish() const { return text_ + "</svg>\n"; }

Axis RoundAxis(double low, double high, int most, double margin) {
  if (high <= low) {  // a single value
    const double room = std::abs(low) < 1e-300 ? 1 : std::abs(low) / 10;
    low -= room;
    high += room;
  }
  const double rough = (high - low) / std::max(1, most);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1, 2, 5}) {
    if (factor * power >= rough * 0.999) {
      step = factor * power;
      break;
    }
  }
  const double room = margin * (high - low);
  if (low != 0) low = low > 0 ? std::max(0.0, low - room) : low - room;
  high += room;
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  // If the values are too far apart, or too large for their distance, steps between them cannot be
  // represented.
  const bool steps = std::isfinite(step) && last - first <= 4.0 * std::max(1, most);
  if (!steps || !(first + 1 > first)) {
    return {.low = low, .high = high, .ticks = {low, high}};
  }
  Axis axis{.low = low, .high = high};
  for (double i = first; i <= last; ++i) axis.ticks.push_back(i * step);
  return axis;
}

std::string TickText(const Axis& axis, double tick) {
  const double step = axis.ticks.size() > 1 ? axis.ticks[1] - axis.ticks[0] : axis.high - axis.low;
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  double unit = 1;
  const char* suffix = "";
  if (largest >= 1e7) {
    unit = 1e6;
    suffix = "M";
  } else if (largest >= 1e4) {
    unit = 1e3;
    suffix = "k";
  }
  if (tick == 0) return "0";
  if (largest < 1e-3) return fmt::format("{:.2g}", tick);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step / unit) + 1e-9)));
  return fmt::format("{:.{}f}{}", tick / unit, decimals, suffix);
}

namespace {

constexpr double kLeft = 44, kRight = 14, kTop = 24, kBottom = 34;
constexpr const char* kGrid = "#dddddd";

struct Bounds {
  Point low, high;
};

std::optional<Bounds> BoundsOf(const Chart& chart) {
  std::optional<Bounds> bounds;
  for (const Curve& curve : chart.curves) {
    for (const auto* points : {&curve.points, &curve.band}) {
      for (const Point& point : *points) {
        if (!CanBeShown(point)) continue;
        if (!bounds) bounds = {point, point};
        bounds->low = {std::min(bounds->low.x, point.x), std::min(bounds->low.y, point.y)};
        bounds->high = {std::max(bounds->high.x, point.x), std::max(bounds->high.y, point.y)};
      }
    }
  }
  return bounds;
}

// Maps values to positions in the picture.
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
  if (!curve.band.empty()) {
    std::vector<Point> edge;
    for (const Point& value : curve.band) {
      if (CanBeShown(value)) edge.push_back(frame.Place(value));
    }
    if (edge.size() == 2) svg.AddLine(edge, {.color = curve.color, .width = 3, .opacity = 0.2});
    if (edge.size() > 2) svg.AddArea(edge, curve.color);
  }
  constexpr double kRoom = 8;  // pixels for a dot
  const bool dots = curve.dots && kRoom * static_cast<double>(curve.points.size()) <= frame.size.x;
  const Stroke stroke{
      .color = curve.color, .width = curve.dashed ? 1.2 : 1.8, .dashed = curve.dashed};
  std::vector<Point> piece;
  const auto end_piece = [&] {
    if (piece.size() > 1) svg.AddLine(piece, stroke);
    if (piece.size() == 1 && !dots) svg.AddDot(piece[0], 2, curve.color);
    piece.clear();
  };
  for (const Point& value : curve.points) {
    if (!CanBeShown(value)) {
      end_piece();
      continue;
    }
    piece.push_back(frame.Place(value));
    if (dots) svg.AddDot(piece.back(), 2.5, curve.color);
  }
  end_piece();
}

}  // namespace

void DrawChart(const Chart& chart, Point corner, Point size, Svg& svg) {
  const Point inner{corner.x + kLeft, corner.y + kTop};
  const Point inner_size{size.x - kLeft - kRight, size.y - kTop - kBottom};
  svg.AddText({inner.x, corner.y + 16}, chart.title,
              {.size = 12, .color = "#000000", .bold = true});
  svg.AddText({inner.x + inner_size.x, corner.y + size.y - 4}, chart.x_title,
              {.size = 11, .anchor = Anchor::kEnd});
  const std::optional<Bounds> bounds = BoundsOf(chart);
  if (!bounds) {
    svg.AddText({inner.x + inner_size.x / 2, inner.y + inner_size.y / 2}, "no data",
                {.anchor = Anchor::kMiddle, .color = "#888888"});
    return;
  }
  const double low = chart.from_zero ? std::min(0.0, bounds->low.y) : bounds->low.y;
  const int most = size.x < 400 ? 4 : 6;
  Frame frame{.x = RoundAxis(std::min(0.0, bounds->low.x), std::max(chart.x_high, bounds->high.x),
                             most, /*margin=*/0),
              .y = RoundAxis(low, bounds->high.y, 5),
              .corner = inner,
              .size = inner_size};
  DrawAxes(frame, svg);
  for (const Curve& curve : chart.curves) DrawCurve(frame, curve, svg);
}

}  // namespace muster
