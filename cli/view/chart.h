// A chart of several lines.
#pragma once

#include <string>
#include <vector>

#include "cli/view/svg.h"

namespace muster {

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
