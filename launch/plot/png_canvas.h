// A picture as PNG, drawn by cairo with a font that is installed with Muster: a bare machine has
// none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/plot/canvas.h"

namespace muster {

class PngCanvas : public Canvas {
 public:
  // `scale`: pixels of the file for each of the drawing. Throws Error(kFailure) where `font_file`
  // cannot be read as a font, or memory is short.
  PngCanvas(double width, double height, double scale, const std::string& font_file);
  ~PngCanvas() override;

  void FillRectangle(Point corner, Point size, const std::string& color) override;
  void DrawLine(const std::vector<Point>& points, const Stroke& stroke) override;
  void DrawDot(Point center, double radius, const std::string& color) override;
  void DrawText(Point at, const std::string& text, const TextStyle& style) override;
  std::string Finish() override;

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

}  // namespace muster
