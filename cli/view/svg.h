// A picture as SVG: lines, rectangles and text, in pixels from the upper left corner.
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
  // The whole file.
  std::string Finish() const;

 private:
  std::string text_;
};

}  // namespace muster
