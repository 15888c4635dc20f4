#include "cli/view/svg.h"

#include <fmt/core.h>

#include <array>

namespace muster {
namespace {

// A run directory may be called anything.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        // XML has no place for control characters.
        escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

}  // namespace

Svg::Svg(Point size)
    : text_(
          fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
                      "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"DejaVu Sans, Verdana, Arial, "
                      "sans-serif\">\n"
                      "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#ffffff\"/>\n",
                      size.x, size.y)) {}

void Svg::AddLine(const std::vector<Point>& points, const Stroke& stroke) {
  text_ += fmt::format(
      "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{:g}\" stroke-opacity=\"{:g}\" "
      "stroke-linejoin=\"round\" points=\"",
      stroke.color, stroke.width, stroke.opacity);
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
      "text-anchor=\"{}\">{}</text>\n",
      at.x, at.y, style.size, style.color, kAnchors[static_cast<size_t>(style.anchor)],
      Escaped(text));
}

std::string Svg::Finish() const { return text_ + "</svg>\n"; }

}  // namespace muster
