#include "cli/text/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace muster {
namespace {

TEST(UnitsTest, Counts) {
  EXPECT_EQ(FormatCount(int64_t{0}), "0");
  EXPECT_EQ(FormatCount(int64_t{999}), "999");
  EXPECT_EQ(FormatCount(int64_t{1000}), "1,000");
  EXPECT_EQ(FormatCount(int64_t{1068298}), "1,068,298");
  EXPECT_EQ(FormatCount(int64_t{-123456}), "-123,456");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(FormatCount(1216.5), "1,217");
  EXPECT_EQ(FormatCount(NAN), "-");
  EXPECT_EQ(FormatCount(INFINITY), "-");
}

TEST(UnitsTest, Rates) {
  EXPECT_EQ(FormatRate(1234.4), "1,234");
  EXPECT_EQ(FormatRate(10), "10");
  EXPECT_EQ(FormatRate(9.94), "9.9");
  EXPECT_EQ(FormatRate(0.04), "0.0");
  EXPECT_EQ(FormatRate(NAN), "-");
}

TEST(UnitsTest, Prefixes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.00 kB");
  EXPECT_EQ(FormatBytes(999999), "1.00 MB");
  EXPECT_EQ(FormatBytes(4273192), "4.27 MB");
  EXPECT_EQ(FormatBytes(42731920), "42.7 MB");
  EXPECT_EQ(FormatFlops(37.84e6), "37.8 MFLOP");
  EXPECT_EQ(FormatFlops(NAN), "-");
}

TEST(UnitsTest, Durations) {
  EXPECT_EQ(FormatDuration(0.84), "0.8 s");
  EXPECT_EQ(FormatDuration(9.96), "10 s");
  EXPECT_EQ(FormatDuration(60), "60 s");
  EXPECT_EQ(FormatDuration(411), "6 min 51 s");
  EXPECT_EQ(FormatDuration(3599.9), "1 h 00 min");
  EXPECT_EQ(FormatDuration(7500), "2 h 05 min");
  EXPECT_EQ(FormatDuration(3 * 86400 + 4 * 3600), "3 d 04 h");
  EXPECT_EQ(FormatDuration(-1), "-");
  EXPECT_EQ(FormatDuration(NAN), "-");
}

TEST(UnitsTest, MillisecondsAndPercent) {
  EXPECT_EQ(FormatMilliseconds(0.312), "0.31 ms");
  EXPECT_EQ(FormatMilliseconds(12.34), "12.3 ms");
  EXPECT_EQ(FormatMilliseconds(2310.2), "2,310 ms");
  EXPECT_EQ(FormatPercent(0.7132), "71 %");
  EXPECT_EQ(FormatPercent(0.7132, 2), "71.32 %");
  EXPECT_EQ(FormatPercent(NAN), "-");
}

TEST(UnitsTest, Plurals) {
  EXPECT_EQ(Plural(1, "worker"), "1 worker");
  EXPECT_EQ(Plural(0, "worker"), "0 workers");
  EXPECT_EQ(Plural(2000, "worker"), "2,000 workers");
}

}  // namespace
}  // namespace muster
