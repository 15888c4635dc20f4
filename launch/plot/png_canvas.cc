#include "launch/plot/png_canvas.h"

#include <ft2build.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "common/base/error.h"
#include "common/base/png.h"
#include "launch/plot/code_points.h"

#include FT_FREETYPE_H
#include FT_OUTLINE_H
#include FT_STROKER_H

namespace muster {
namespace {

void Check(FT_Error error, const char* what) {
  if (error == 0) return;
  throw Error(ExitCode::kFailure, "a picture could not be drawn: {}: FreeType's error {}", what,
              error);
}

// FreeType's numbers have 6 binary places.
FT_Pos Fixed(double value) { return std::lround(value * 64); }

// An outline of its own.
class Outline {
 public:
  Outline(FT_Library library, FT_UInt points, FT_UInt contours) : library_(library) {
    Check(FT_Outline_New(library, points, static_cast<FT_Int>(contours), &outline_), "an outline");
    outline_.n_points = outline_.n_contours = 0;  // filled by whoever made it
  }
  ~Outline() { FT_Outline_Done(library_, &outline_); }
  Outline(const Outline&) = delete;
  FT_Outline* get() { return &outline_; }

 private:
  FT_Library library_;
  FT_Outline outline_{};
};

}  // namespace

// Released from below.
struct PngCanvas::FreeType {
  template <auto kRelease>
  struct Release {
    template <typename T>
    void operator()(T* handle) const {
      kRelease(handle);
    }
  };

  using Library = std::unique_ptr<FT_LibraryRec_, Release<FT_Done_FreeType>>;
  using Face = std::unique_ptr<FT_FaceRec_, Release<FT_Done_Face>>;
  using Stroker = std::unique_ptr<FT_StrokerRec_, Release<FT_Stroker_Done>>;

  Library library;
  Face face;
  Stroker stroker;

  // Calls `paint(x, y, count, coverage)` for the pixels inside, from the upper left corner.
  template <typename Paint>
  void Fill(FT_Outline* outline, int width, int height, Paint paint) {
    struct Target {
      int height;
      Paint paint;
    } target{height, std::move(paint)};
    FT_Raster_Params params{};
    params.flags = FT_RASTER_FLAG_AA | FT_RASTER_FLAG_DIRECT | FT_RASTER_FLAG_CLIP;
    params.clip_box = {0, 0, width, height};
    params.user = &target;
    params.gray_spans = [](int y, int count, const FT_Span* spans, void* user) {
      const auto& to = *static_cast<Target*>(user);
      for (int i = 0; i < count; ++i) {
        to.paint(spans[i].x, to.height - 1 - y, spans[i].len, spans[i].coverage / 255.0);
      }
    };
    Check(FT_Outline_Render(library.get(), outline, &params), "a shape");
  }

  // The shape of a pen's way, which has been begun and ended.
  template <typename Paint>
  void FillStroke(int width, int height, Paint paint) {
    FT_UInt points = 0, contours = 0;
    Check(FT_Stroker_GetCounts(stroker.get(), &points, &contours), "a line");
    if (points == 0) return;
    Outline outline(library.get(), points, contours);
    FT_Stroker_Export(stroker.get(), outline.get());
    Fill(outline.get(), width, height, std::move(paint));
  }
};

PngCanvas::PngCanvas(double width, double height, double scale, const std::string& font_file)
    : scale_(scale),
      width_(static_cast<int>(std::lround(width * scale))),
      height_(static_cast<int>(std::lround(height * scale))),
      pixels_(size_t{3} * static_cast<size_t>(width_) * static_cast<size_t>(height_), '\xff'),
      free_type_(std::make_unique<FreeType>()) {
  FT_Library library = nullptr;
  Check(FT_Init_FreeType(&library), "the beginning");
  free_type_->library.reset(library);
  FT_Face face = nullptr;
  if (const FT_Error error = FT_New_Face(library, font_file.c_str(), 0, &face); error != 0) {
    throw Error(ExitCode::kFailure,
                "{}: expected the font that is installed with Muster, but FreeType cannot read it "
                "(error {}); install Muster again, or ask for an SVG, which needs none",
                font_file, error);
  }
  free_type_->face.reset(face);
  FT_Stroker stroker = nullptr;
  Check(FT_Stroker_New(library, &stroker), "the beginning");
  free_type_->stroker.reset(stroker);
}

PngCanvas::~PngCanvas() = default;

// "#rrggbb"
PngCanvas::Ink PngCanvas::InkOf(const std::string& color, double opacity) {
  const auto value = std::strtoul(color.c_str() + 1, nullptr, 16);
  return {static_cast<uint8_t>(value >> 16), static_cast<uint8_t>(value >> 8),
          static_cast<uint8_t>(value), opacity};
}

void PngCanvas::Blend(int x, int y, int count, double coverage, const Ink& ink) {
  const double share = coverage * ink.opacity;
  char* at = pixels_.data() +
             3 * (static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x));
  for (int i = 0; i < count; ++i) {
    for (const uint8_t part : {ink.red, ink.green, ink.blue}) {
      const auto before = static_cast<double>(static_cast<uint8_t>(*at));
      *at++ = static_cast<char>(std::lround(before + share * (part - before)));
    }
  }
}

void PngCanvas::FillRectangle(Point corner, Point size, const std::string& color) {
  const auto place = [this](double value, int most) {
    return std::clamp(static_cast<int>(std::lround(value * scale_)), 0, most);
  };
  const int left = place(corner.x, width_), right = place(corner.x + size.x, width_);
  const int top = place(corner.y, height_), bottom = place(corner.y + size.y, height_);
  for (int y = top; y < bottom; ++y) Blend(left, y, right - left, 1, InkOf(color));
}

// An outline has no more than 32767 points, of which a piece takes a few for each of its own.
void PngCanvas::DrawLine(const std::vector<Point>& points, const Stroke& stroke) {
  constexpr size_t kPiece = 1000;
  for (size_t begin = 0; begin + 1 < points.size(); begin += kPiece) {
    DrawPiece(points.data() + begin, std::min(kPiece + 1, points.size() - begin), stroke);
  }
}

void PngCanvas::DrawPiece(const Point* points, size_t count, const Stroke& stroke) {
  const auto place = [this](const Point& point) {
    return FT_Vector{Fixed(point.x * scale_), Fixed(height_ - point.y * scale_)};
  };
  FT_Vector to = place(points[0]);
  // FreeType reads what is not its own where a line has no length.
  const bool has_length = std::any_of(points + 1, points + count, [&](const Point& point) {
    const FT_Vector other = place(point);
    return other.x != to.x || other.y != to.y;
  });
  if (!has_length) return DrawDot(points[0], stroke.width / 2, stroke.color);
  FT_Stroker const pen = free_type_->stroker.get();
  FT_Stroker_Rewind(pen);
  FT_Stroker_Set(pen, Fixed(stroke.width * scale_ / 2), FT_STROKER_LINECAP_BUTT,
                 FT_STROKER_LINEJOIN_ROUND, 0);
  Check(FT_Stroker_BeginSubPath(pen, &to, /*open=*/1), "a line");
  for (size_t i = 1; i < count; ++i) {
    to = place(points[i]);
    Check(FT_Stroker_LineTo(pen, &to), "a line");
  }
  Check(FT_Stroker_EndSubPath(pen), "a line");
  const Ink ink = InkOf(stroke.color, stroke.opacity);
  free_type_->FillStroke(width_, height_, [&](int x, int y, int length, double coverage) {
    Blend(x, y, length, coverage, ink);
  });
}

// A line of no length to speak of with round ends.
void PngCanvas::DrawDot(Point center, double radius, const std::string& color) {
  FT_Stroker const pen = free_type_->stroker.get();
  FT_Stroker_Rewind(pen);
  FT_Stroker_Set(pen, Fixed(radius * scale_), FT_STROKER_LINECAP_ROUND, FT_STROKER_LINEJOIN_ROUND,
                 0);
  FT_Vector at{Fixed(center.x * scale_), Fixed(height_ - center.y * scale_)};
  Check(FT_Stroker_BeginSubPath(pen, &at, /*open=*/1), "a dot");
  at.x += 1;
  Check(FT_Stroker_LineTo(pen, &at), "a dot");
  Check(FT_Stroker_EndSubPath(pen), "a dot");
  const Ink ink = InkOf(color);
  free_type_->FillStroke(width_, height_, [&](int x, int y, int length, double coverage) {
    Blend(x, y, length, coverage, ink);
  });
}

void PngCanvas::DrawText(Point at, const std::string& text, const TextStyle& style) {
  FT_Face const face = free_type_->face.get();
  Check(FT_Set_Char_Size(face, 0, Fixed(style.size * scale_), 72, 72), "a text");
  const std::vector<uint32_t> points = CodePoints(text);
  const auto load = [&](uint32_t point) {
    Check(FT_Load_Char(face, point, FT_LOAD_NO_HINTING | FT_LOAD_NO_BITMAP), "a letter");
    return face->glyph->advance.x;
  };
  FT_Pos length = 0;
  for (const uint32_t point : points) length += load(point);
  FT_Pos x = Fixed(at.x * scale_) - (style.anchor == Anchor::kStart    ? 0
                                     : style.anchor == Anchor::kMiddle ? length / 2
                                                                       : length);
  const Ink ink = InkOf(style.color);
  for (const uint32_t point : points) {
    const FT_Pos advance = load(point);
    FT_Outline* const outline = &face->glyph->outline;
    FT_Outline_Translate(outline, x, Fixed(height_ - at.y * scale_));
    free_type_->Fill(outline, width_, height_, [&](int left, int y, int count, double coverage) {
      Blend(left, y, count, coverage, ink);
    });
    x += advance;
  }
}

std::string PngCanvas::Finish() {
  return EncodePng(static_cast<uint32_t>(height_), static_cast<uint32_t>(width_), pixels_);
}

}  // namespace muster
