// What the canvases draw: SVG's text, PNG's pixels.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "launch/plot/code_points.h"
#include "launch/plot/png_canvas.h"
#include "launch/plot/svg_canvas.h"
#include "tests/base/png_reader.h"

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

// Pixels in this part that are not white.
int Drawn(const testing::PngReader& pixels, int left, int top, int right, int bottom) {
  int drawn = 0;
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) drawn += pixels.At(x, y) != 0xffffff ? 1 : 0;
  }
  return drawn;
}

TEST(PngCanvasTest, DrawsEachThingWhereItIsAndNothingBetweenThem) {
  PngCanvas canvas(200, 100, 2, kFont);
  canvas.FillRectangle({0, 0}, {200, 100}, "#ffffff");
  canvas.DrawText({10, 20}, "Text", {.size = 16, .color = "#0000ff"});
  canvas.DrawLine({{150, 90}, {190, 90}}, {.color = "#ff0000", .width = 4});
  canvas.DrawText({190, 20}, "end", {.anchor = Anchor::kEnd});
  canvas.DrawDot({100, 80}, 5, "#00ff00");
  const testing::PngReader pixels(canvas.Finish());
  EXPECT_EQ(pixels.width(), 400);
  EXPECT_EQ(pixels.height(), 200);
  EXPECT_GT(Drawn(pixels, 20, 10, 100, 44), 100);  // "Text": some strokes of it
  EXPECT_GT(Drawn(pixels, 300, 10, 382, 44), 50);  // "end", to the left of its place
  EXPECT_EQ(Drawn(pixels, 384, 0, 400, 60), 0);
  EXPECT_EQ(pixels.At(340, 180), 0xff0000u);
  EXPECT_EQ(pixels.At(200, 160), 0x00ff00u);
  EXPECT_EQ(Drawn(pixels, 0, 60, 400, 140), 0);  // nothing joins the one to the other
}

// More points than an outline of FreeType's holds.
TEST(PngCanvasTest, ALongLine) {
  PngCanvas canvas(100, 100, 1, kFont);
  std::vector<Point> points;
  for (int i = 0; i <= 50000; ++i) points.push_back({i / 500.0, i % 2 == 0 ? 20.0 : 80.0});
  canvas.DrawLine(points, {.color = "#000000"});
  const testing::PngReader pixels(canvas.Finish());
  EXPECT_EQ(pixels.At(10, 50), 0u);
  EXPECT_EQ(pixels.At(90, 50), 0u);
  EXPECT_EQ(pixels.At(50, 10), 0xffffffu);
}

TEST(PngCanvasTest, WhatLiesOutsideIsLeftOut) {
  PngCanvas canvas(20, 20, 1, kFont);
  canvas.DrawLine({{-100, 10}, {100, 10}}, {.width = 2});
  canvas.DrawDot({-50, -50}, 5, "#ff0000");
  canvas.DrawText({15, 5}, "a long text beyond the edge", {});
  canvas.FillRectangle({-5, 18}, {100, 100}, "#00ff00");
  const testing::PngReader pixels(canvas.Finish());
  EXPECT_EQ(pixels.At(0, 10), 0u);
  EXPECT_EQ(pixels.At(19, 19), 0x00ff00u);
}

TEST(CodePointsTest, OfUtf8AndOfWhatIsNone) {
  EXPECT_THAT(CodePoints("aé€\xf0\x9f\x98\x80"),
              ::testing::ElementsAre('a', 0xe9, 0x20ac, 0x1f600));
  EXPECT_THAT(CodePoints("\xff\n\xe2\x82"), ::testing::ElementsAre('?', '?', '?', '?'));
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
