// A picture of charts or images, as SVG. Pixels count from the upper left corner.
#pragma once

#include <string>
#include <vector>

namespace muster {

struct Point {
  double x = 0, y = 0;
};

struct Stroke {
  std::string color = "#000000";  // #rrggbb
  double width = 1;
  double opacity = 1;
};

// The end of a text that is at its place.
enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  double size = 12;  // pixels
  Anchor anchor = Anchor::kStart;
  std::string color = "#333333";
};

class Svg {
 public:
  // White at first.
  explicit Svg(Point size);

  // Connects the points in order.
  void AddLine(const std::vector<Point>& points, const Stroke& stroke);
  void AddDot(Point center, double radius, const std::string& color);
  // `at` is on the baseline.
  void AddText(Point at, const std::string& text, const TextStyle& style);
  // `url`: where the image is, or itself, as data:image/png;base64,… Its pixels stay squares.
  void AddImage(Point corner, Point size, const std::string& url);
  // The whole file.
  std::string Finish() const;

 private:
  std::string text_;
};

// From values to a length, and the values that are written beside it.
struct Axis {
  double low = 0, high = 1;  // low < high
  std::vector<double> ticks;

  // 0 at low, 1 at high.
  double At(double value) const { return (value - low) / (high - low); }
};

// Ends at ticks, which are 1, 2 or 5 times a power of ten apart, about `most` of them. `low` and
// `high` are finite.
Axis RoundAxis(double low, double high, int most);

// As many digits as tell it from the next tick; thousands as k, millions as M.
std::string TickText(const Axis& axis, double tick);

struct Curve {
  std::string color;
  std::vector<Point> points;  // ascending in x; what is not finite leaves a gap
  bool dots = false;          // one for each point: there are few, of evaluations
  double opacity = 1;
};

struct Chart {
  std::string title, x_title;
  std::vector<Curve> curves;
  bool from_zero = false;  // the axis begins at 0
};

// Within the rectangle.
void DrawChart(const Chart& chart, Point corner, Point size, Svg& svg);

}  // namespace muster
