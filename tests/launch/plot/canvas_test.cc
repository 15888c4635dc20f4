// What the canvases draw: SVG's text, PNG's pixels.
#include <cairo.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/base/error.h"
#include "launch/plot/png_canvas.h"
#include "launch/plot/svg_canvas.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kFont = MUSTER_BIN_DIR "/../share/muster/DejaVuSans.ttf";

TEST(SvgCanvasTest, WritesWhatIsDrawn) {
  SvgCanvas canvas(100, 50);
  canvas.DrawLine({{0, 0}, {10, 20}}, {.color = "#ff0000"});
  canvas.DrawText({5, 5}, "a<b & \x01", {.anchor = Anchor::kEnd});
  EXPECT_THAT(canvas.Finish(),
              AllOf(HasSubstr("viewBox=\"0 0 100 50\""), HasSubstr("0.0,0.0 10.0,20.0"),
                    HasSubstr("text-anchor=\"end\""), HasSubstr("a&lt;b &amp;  <"),
                    Not(HasSubstr("\x01")), HasSubstr("</svg>")));
}

// A PNG's pixels, as 0xrrggbb.
class Pixels {
 public:
  explicit Pixels(std::string file) : file_(std::move(file)) {
    surface_ = cairo_image_surface_create_from_png_stream(Read, this);
    EXPECT_EQ(cairo_surface_status(surface_), CAIRO_STATUS_SUCCESS);
  }
  ~Pixels() { cairo_surface_destroy(surface_); }
  Pixels(const Pixels&) = delete;

  int width() const { return cairo_image_surface_get_width(surface_); }
  int height() const { return cairo_image_surface_get_height(surface_); }
  uint32_t At(int x, int y) const {
    uint32_t value = 0;
    std::memcpy(&value,
                cairo_image_surface_get_data(surface_) +
                    y * cairo_image_surface_get_stride(surface_) + 4 * x,
                sizeof value);
    return value & 0xffffff;
  }
  // Pixels in this part that are not white.
  int Drawn(int left, int top, int right, int bottom) const {
    int drawn = 0;
    for (int y = top; y < bottom; ++y) {
      for (int x = left; x < right; ++x) drawn += At(x, y) != 0xffffff ? 1 : 0;
    }
    return drawn;
  }

 private:
  static cairo_status_t Read(void* self, unsigned char* bytes, unsigned int count) {
    auto& pixels = *static_cast<Pixels*>(self);
    if (pixels.at_ + count > pixels.file_.size()) return CAIRO_STATUS_READ_ERROR;
    std::memcpy(bytes, pixels.file_.data() + pixels.at_, count);
    pixels.at_ += count;
    return CAIRO_STATUS_SUCCESS;
  }
  std::string file_;
  size_t at_ = 0;
  cairo_surface_t* surface_ = nullptr;
};

TEST(PngCanvasTest, DrawsEachThingWhereItIsAndNothingBetweenThem) {
  PngCanvas canvas(200, 100, 2, kFont);
  canvas.FillRectangle({0, 0}, {200, 100}, "#ffffff");
  canvas.DrawText({10, 20}, "Text", {.size = 16, .color = "#0000ff"});
  canvas.DrawLine({{150, 90}, {190, 90}}, {.color = "#ff0000", .width = 4});
  canvas.DrawText({190, 20}, "end", {.anchor = Anchor::kEnd});
  canvas.DrawDot({100, 80}, 5, "#00ff00");
  const Pixels pixels(canvas.Finish());
  EXPECT_EQ(pixels.width(), 400);
  EXPECT_EQ(pixels.height(), 200);
  EXPECT_GT(pixels.Drawn(20, 10, 100, 44), 100);  // "Text": some strokes of it
  EXPECT_GT(pixels.Drawn(300, 10, 382, 44), 50);  // "end", to the left of its place
  EXPECT_EQ(pixels.Drawn(384, 0, 400, 60), 0);
  EXPECT_EQ(pixels.At(340, 180), 0xff0000u);
  EXPECT_EQ(pixels.At(200, 160), 0x00ff00u);
  EXPECT_EQ(pixels.Drawn(0, 60, 400, 140), 0);  // nothing joins the one to the other
}

TEST(PngCanvasTest, AMissingFontIsNamed) {
  try {
    PngCanvas canvas(10, 10, 1, "/nowhere/font.ttf");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/nowhere/font.ttf"), HasSubstr("SVG")));
  }
}

}  // namespace
}  // namespace muster
