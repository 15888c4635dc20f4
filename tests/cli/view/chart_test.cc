#include "cli/view/chart.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Texts(const Axis& axis) {
  std::vector<std::string> texts;
  for (const double tick : axis.ticks) texts.push_back(TickText(axis, tick));
  return texts;
}

TEST(AxisTest, HasRoundNumbersAmongTheValues) {
  EXPECT_THAT(Texts(RoundAxis(0.3, 2.48, 5)), ElementsAre("0.5", "1.0", "1.5", "2.0", "2.5"));
  EXPECT_THAT(Texts(RoundAxis(10, 120, 6)), ElementsAre("20", "40", "60", "80", "100", "120"));
  EXPECT_THAT(Texts(RoundAxis(0, 39100, 4)), ElementsAre("0", "10k", "20k", "30k", "40k"));
  EXPECT_THAT(Texts(RoundAxis(0, 25e6, 3)), ElementsAre("0", "10M", "20M"));
}

TEST(AxisTest, OneValueHasRoomAroundIt) {
  for (const double value : {0.0, 0.05, -3.0, 1e9, 5e-324}) {
    const Axis axis = RoundAxis(value, value, 5);
    EXPECT_LT(axis.low, value);
    EXPECT_GT(axis.high, value);
    EXPECT_GE(axis.ticks.size(), 2u);
  }
}

// No representable step lies between these values. The search for one used to loop forever.
TEST(AxisTest, ValuesThatAreTooLargeForSteps) {
  for (const auto& [low, high] : {std::pair(1e16, 1e16 + 4), {-1e308, 1e308}, {3e18, 3e18 + 512}}) {
    const Axis axis = RoundAxis(low, high, 5);
    EXPECT_LE(axis.ticks.size(), 20u);
    EXPECT_LE(axis.low, low);
    EXPECT_GE(axis.high, high);
  }
}

// A constant curve is then not on the frame.
TEST(AxisTest, HasAMarginButNotBelowZero) {
  const Axis axis = RoundAxis(0, 100, 5);
  EXPECT_EQ(axis.low, 0);
  EXPECT_DOUBLE_EQ(axis.high, 104);
  EXPECT_DOUBLE_EQ(RoundAxis(50, 100, 5).low, 48);
}

TEST(AxisTest, PlacesValues) {
  const Axis axis = RoundAxis(0, 10, 5, 0);
  EXPECT_THAT(axis.At(0), DoubleNear(0, 1e-12));
  EXPECT_THAT(axis.At(5), DoubleNear(0.5, 1e-12));
  EXPECT_THAT(axis.At(10), DoubleNear(1, 1e-12));
}

TEST(SvgTest, WritesWhatIsDrawn) {
  Svg svg({100, 50});
  svg.AddLine({{0, 0}, {10, 20}}, {.color = "#ff0000"});
  svg.AddText({5, 5}, "a<b & \x01", {.anchor = Anchor::kEnd});
  EXPECT_THAT(svg.Finish(),
              AllOf(HasSubstr("viewBox=\"0 0 100 50\""), HasSubstr("0.0,0.0 10.0,20.0"),
                    HasSubstr("text-anchor=\"end\""), HasSubstr("a&lt;b &amp;  <"),
                    Not(HasSubstr("\x01")), HasSubstr("</svg>")));
}

}  // namespace
}  // namespace muster
