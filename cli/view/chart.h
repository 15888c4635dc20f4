// Draws charts and images as SVG. Coordinates are pixels from the upper left corner.
#pragma once

#include <string>
#include <vector>

namespace muster {

// Any text, such as the name of a directory, within XML or HTML, or the value of an attribute.
std::string Markup(const std::string& text);

struct Point {
  double x = 0, y = 0;
};

// Whether the point is finite, and so small that differences and positions are finite too.
bool CanBeShown(const Point& point);

struct Stroke {
  std::string color = "#000000";  // #rrggbb
  double width = 1;
  double opacity = 1;
  bool dashed = false;
};

// Which part of a text is placed at its point.
enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  double size = 12;  // pixels
  Anchor anchor = Anchor::kStart;
  std::string color = "#333333";
  bool bold = false;
};

inline constexpr const char* kSvgBeginning = "<svg xmlns=\"http://www.w3.org/2000/svg\" ";

class Svg {
 public:
  // The background is white.
  explicit Svg(Point size);

  // Connects the points in order.
  void AddLine(const std::vector<Point>& points, const Stroke& stroke);
  // Fills the polygon between the points, lightly.
  void AddArea(const std::vector<Point>& points, const std::string& color);
  void AddDot(Point center, double radius, const std::string& color);
  // `at` is on the baseline.
  void AddText(Point at, const std::string& text, const TextStyle& style);
  // `url`: a link, or the image itself as data:image/png;base64,… Pixels are not smoothed.
  void AddImage(Point corner, Point size, const std::string& url);
  // Returns the whole file.
  std::string Finish() const;

 private:
  std::string text_;
};

// Maps values to positions, and lists the labelled values.
struct Axis {
  double low = 0, high = 1;  // low < high
  std::vector<double> ticks;

  // 0 at low, 1 at high.
  double At(double value) const { return (value - low) / (high - low); }
};

// The axis has a margin around the values, a share of their range, but none below 0. Ticks are 1, 2
// or 5 times a power of ten apart; there are about `most`. `low` and `high` must be finite.
Axis RoundAxis(double low, double high, int most, double margin = 0.04);

// Uses enough digits to distinguish adjacent ticks; thousands as k, millions as M.
std::string TickText(const Axis& axis, double tick);

struct Curve {
  std::string color;
  std::vector<Point> points;  // ascending in x; values that are not finite leave a gap
  std::vector<Point> band;    // a light area around the points: its lower edge, and back the upper
  bool dots = false;          // mark each point, if there is room
  bool dashed = false;
};

struct Chart {
  std::string title, x_title;
  std::vector<Curve> curves;
  bool from_zero = false;  // the y axis begins at 0
  double x_high = 0;       // the x axis ends here or at the last point; it begins at 0
};

// Draws the chart within the rectangle.
void DrawChart(const Chart& chart, Point corner, Point size, Svg& svg);

}  // namespace muster
