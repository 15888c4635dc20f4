// What a chart is drawn on: lines, rectangles and words, in pixels from the upper left corner.
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

// Which end of a text is at its place.
enum class Anchor { kStart, kMiddle, kEnd };

struct TextStyle {
  double size = 12;  // pixels
  Anchor anchor = Anchor::kStart;
  std::string color = "#333333";
};

class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual void FillRectangle(Point corner, Point size, const std::string& color) = 0;
  // Joined one after the other.
  virtual void DrawLine(const std::vector<Point>& points, const Stroke& stroke) = 0;
  virtual void DrawDot(Point center, double radius, const std::string& color) = 0;
  // `at`: on the base line. UTF-8.
  virtual void DrawText(Point at, const std::string& text, const TextStyle& style) = 0;
  // The whole file.
  virtual std::string Finish() = 0;
};

}  // namespace muster
