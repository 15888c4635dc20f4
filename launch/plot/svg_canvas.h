// A picture as SVG: text, which any browser shows at any size.
#pragma once

#include <string>
#include <vector>

#include "launch/plot/canvas.h"

namespace muster {

class SvgCanvas : public Canvas {
 public:
  SvgCanvas(double width, double height);

  void FillRectangle(Point corner, Point size, const std::string& color) override;
  void DrawLine(const std::vector<Point>& points, const Stroke& stroke) override;
  void DrawDot(Point center, double radius, const std::string& color) override;
  void DrawText(Point at, const std::string& text, const TextStyle& style) override;
  std::string Finish() override;

 private:
  std::string text_;
};

}  // namespace muster
