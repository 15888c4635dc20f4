#include "launch/plot/png_canvas.h"

#include <cairo-ft.h>
#include <cairo.h>
#include <ft2build.h>
#include FT_FREETYPE_H

#include <cmath>
#include <cstdlib>

#include "common/base/error.h"

namespace muster {
namespace {

template <auto kRelease>
struct Release {
  template <typename T>
  void operator()(T* handle) const {
    kRelease(handle);
  }
};

using Library = std::unique_ptr<FT_LibraryRec_, Release<FT_Done_FreeType>>;
using Face = std::unique_ptr<FT_FaceRec_, Release<FT_Done_Face>>;
using Font = std::unique_ptr<cairo_font_face_t, Release<cairo_font_face_destroy>>;
using Surface = std::unique_ptr<cairo_surface_t, Release<cairo_surface_destroy>>;
using Context = std::unique_ptr<cairo_t, Release<cairo_destroy>>;

void Check(cairo_status_t status, const char* what) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  throw Error(ExitCode::kFailure, "a picture could not be {}: {}", what,
              cairo_status_to_string(status));
}

// "#rrggbb"
void SetColor(cairo_t* context, const std::string& color, double opacity = 1) {
  const auto value = std::strtoul(color.c_str() + 1, nullptr, 16);
  const auto part = [&](int shift) { return static_cast<double>((value >> shift) & 0xff) / 255; };
  cairo_set_source_rgba(context, part(16), part(8), part(0), opacity);
}

cairo_status_t AppendTo(void* text, const unsigned char* bytes, unsigned int count) {
  static_cast<std::string*>(text)->append(reinterpret_cast<const char*>(bytes), count);
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

// Released from below: cairo's font goes before the face that it uses. cairo keeps a font of its
// own caches beyond that, but reads no glyph of it any more.
struct PngCanvas::Handles {
  Library library;
  Face face;
  Font font;
  Surface surface;
  Context context;
};

PngCanvas::PngCanvas(double width, double height, double scale, const std::string& font_file)
    : handles_(std::make_unique<Handles>()) {
  FT_Library library = nullptr;
  if (FT_Init_FreeType(&library) != 0) {
    throw Error(ExitCode::kFailure, "FreeType could not be started: out of memory?");
  }
  handles_->library.reset(library);
  FT_Face face = nullptr;
  if (const FT_Error error = FT_New_Face(library, font_file.c_str(), 0, &face); error != 0) {
    throw Error(ExitCode::kFailure,
                "{}: expected the font that is installed with Muster, but FreeType cannot read it "
                "(error {}); install Muster again, or ask for an SVG, which needs none",
                font_file, error);
  }
  handles_->face.reset(face);
  handles_->font.reset(cairo_ft_font_face_create_for_ft_face(face, 0));
  handles_->surface.reset(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(std::lround(width * scale)),
                                 static_cast<int>(std::lround(height * scale))));
  handles_->context.reset(cairo_create(handles_->surface.get()));
  cairo_t* const context = handles_->context.get();
  Check(cairo_status(context), "begun");
  cairo_scale(context, scale, scale);
  cairo_set_line_join(context, CAIRO_LINE_JOIN_ROUND);
  cairo_set_font_face(context, handles_->font.get());
}

PngCanvas::~PngCanvas() = default;

void PngCanvas::FillRectangle(Point corner, Point size, const std::string& color) {
  cairo_t* const context = handles_->context.get();
  SetColor(context, color);
  cairo_new_path(context);
  cairo_rectangle(context, corner.x, corner.y, size.x, size.y);
  cairo_fill(context);
}

void PngCanvas::DrawLine(const std::vector<Point>& points, const Stroke& stroke) {
  cairo_t* const context = handles_->context.get();
  SetColor(context, stroke.color, stroke.opacity);
  cairo_set_line_width(context, stroke.width);
  cairo_new_path(context);  // a text leaves its end as a point
  for (const Point& point : points) cairo_line_to(context, point.x, point.y);
  cairo_stroke(context);
}

void PngCanvas::DrawDot(Point center, double radius, const std::string& color) {
  cairo_t* const context = handles_->context.get();
  SetColor(context, color);
  cairo_new_path(context);
  cairo_arc(context, center.x, center.y, radius, 0, 2 * M_PI);
  cairo_fill(context);
}

void PngCanvas::DrawText(Point at, const std::string& text, const TextStyle& style) {
  cairo_t* const context = handles_->context.get();
  SetColor(context, style.color);
  cairo_set_font_size(context, style.size);
  cairo_text_extents_t extents;
  cairo_text_extents(context, text.c_str(), &extents);
  const double left = style.anchor == Anchor::kStart    ? 0
                      : style.anchor == Anchor::kMiddle ? extents.x_advance / 2
                                                        : extents.x_advance;
  cairo_move_to(context, at.x - left, at.y);
  cairo_show_text(context, text.c_str());
}

std::string PngCanvas::Finish() {
  Check(cairo_status(handles_->context.get()), "drawn");
  std::string file;
  Check(cairo_surface_write_to_png_stream(handles_->surface.get(), AppendTo, &file), "written");
  return file;
}

}  // namespace muster
