#include "cli/view/svg.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
