// A picture as PNG, drawn by FreeType with a font that is installed with Muster: a bare machine has
// none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launch/plot/canvas.h"

namespace muster {

class PngCanvas : public Canvas {
 public:
  // `scale`: pixels of the file for each of the drawing. Throws Error(kFailure) where `font_file`
  // cannot be read as a font, or memory is short. White at first.
  PngCanvas(double width, double height, double scale, const std::string& font_file);
  ~PngCanvas() override;

  void FillRectangle(Point corner, Point size, const std::string& color) override;
  void DrawLine(const std::vector<Point>& points, const Stroke& stroke) override;
  void DrawDot(Point center, double radius, const std::string& color) override;
  void DrawText(Point at, const std::string& text, const TextStyle& style) override;
  std::string Finish() override;

 private:
  struct FreeType;
  struct Ink {
    uint8_t red, green, blue;
    double opacity;
  };
  static Ink InkOf(const std::string& color, double opacity = 1);
  void DrawPiece(const Point* points, size_t count, const Stroke& stroke);
  void Blend(int x, int y, int count, double coverage, const Ink& ink);

  const double scale_;
  const int width_, height_;  // in pixels of the file
  std::string pixels_;        // red, green, blue
  std::unique_ptr<FreeType> free_type_;
};

}  // namespace muster
