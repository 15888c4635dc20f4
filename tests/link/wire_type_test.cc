#include "common/link/wire_type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/base/memory.h"

namespace muster {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class WireTypeTest : public ::testing::TestWithParam<WireType> {
 protected:
  float RoundTrip(float value) const {
    RoundToWire(GetParam(), {&value, 1});
    return value;
  }
  float FromBits(uint16_t half) const {
    float value;
    Widen(GetParam(), {&half, 1}, &value);
    return value;
  }
  uint16_t ToBits(float value) const {
    uint16_t half;
    (void)Narrow(GetParam(), {&value, 1}, &half);
    return half;
  }
};

TEST_P(WireTypeTest, EveryHalfSurvivesWideningAndNarrowing) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = FromBits(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(RoundTrip(value))) << bits;
    } else {
      EXPECT_EQ(ToBits(value), bits);
    }
  }
}

// The nearer of the two halves around a value; of two equally near ones the even one.
TEST_P(WireTypeTest, RoundsToNearestEven) {
  std::mt19937 random(5);
  for (int i = 0; i < 200000; ++i) {
    // Values in the range of both formats: any sign and significand, and exponents from -30 to 20.
    const auto exponent = static_cast<uint32_t>(127 - 30 + random() % 50);
    const auto value =
        std::bit_cast<float>(static_cast<uint32_t>(random() & 0x807fffff) | exponent << 23);
    const uint16_t half = ToBits(value);
    const double here = FromBits(half);
    if (!std::isfinite(here)) continue;
    const double error = std::abs(here - value);
    for (const int step : {-1, 1}) {
      const uint16_t neighbour = static_cast<uint16_t>(half + step);
      const double there = FromBits(neighbour);
      if (!std::isfinite(there) || std::signbit(there) != std::signbit(here)) continue;
      const double other = std::abs(there - value);
      EXPECT_TRUE(error < other || (error == other && half % 2 == 0)) << value;
    }
  }
}

TEST_P(WireTypeTest, AnyLengthGivesTheSameBits) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(2100);
  for (float& value : values) value = normal(random);
  for (const size_t count : {1u, 7u, 8u, 9u, 1023u, 1024u, 1025u, 2099u}) {
    const std::span<const float> some = std::span(values).subspan(1, count);
    std::vector<uint16_t> halves(count);
    EXPECT_EQ(Narrow(GetParam(), some, halves.data()), 0u);
    std::vector<float> widened(count), rounded(some.begin(), some.end());
    Widen(GetParam(), halves, widened.data());
    RoundToWire(GetParam(), rounded);
    EXPECT_EQ(rounded, widened);
    Arena past(count);
    WidenPastCache(GetParam(), halves, past.floats().data());
    EXPECT_TRUE(std::ranges::equal(past.floats(), widened));
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(halves[i], ToBits(some[i]));
  }
}

TEST_P(WireTypeTest, TellsOfWhatIsNotFinite) {
  std::vector<float> values(40, 1.0f);
  std::vector<uint16_t> halves(values.size());
  EXPECT_EQ(Narrow(GetParam(), values, halves.data()), 0u);
  const float nan_like_infinity = std::bit_cast<float>(0x7f800001u);  // in its upper bits
  const float nan_that_overflows = std::bit_cast<float>(0xffffffffu);
  for (const float bad :
       {kInfinity, -kInfinity, std::nanf(""), 3.4e38f, nan_like_infinity, nan_that_overflows}) {
    for (size_t at = 0; at < values.size(); ++at) {  // in each lane and in the remainder
      std::vector<float> some = values;
      some[at] = bad;
      EXPECT_NE(Narrow(GetParam(), some, halves.data()), 0u) << bad << " at " << at;
      RoundToWire(GetParam(), some);
      for (size_t i = 0; i < some.size(); ++i) {
        const float half = RoundTrip(i == at ? bad : 1.0f);
        EXPECT_EQ(std::isnan(half), i == at && std::isnan(bad));
        EXPECT_EQ(halves[i], ToBits(half));
        EXPECT_EQ(std::bit_cast<uint32_t>(some[i]), std::bit_cast<uint32_t>(half));
      }
    }
  }
}

TEST_P(WireTypeTest, AddsAndRounds) {
  const float nan_that_overflows = std::bit_cast<float>(0xffffffffu);
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const size_t count : {1u, 3u, 16u, 17u, 1031u}) {
    std::vector<float> a(count), b(count);
    for (float& value : a) value = RoundTrip(normal(random));
    for (float& value : b) value = RoundTrip(normal(random));
    a[0] = kInfinity;
    b[count - 1] = nan_that_overflows;
    b[count / 2] = -a[count / 2];
    std::vector<uint16_t> half_a(count), half_b(count);
    (void)Narrow(GetParam(), a, half_a.data());
    (void)Narrow(GetParam(), b, half_b.data());
    std::vector<float> sum(count), sum_of_halves(count);
    AddOnWire(GetParam(), a.data(), b.data(), sum.data(), count);
    AddHalves(GetParam(), half_a.data(), half_b.data(), sum_of_halves.data(), count);
    for (size_t i = 0; i < count; ++i) {
      const float expected = RoundTrip(a[i] + b[i]);
      EXPECT_TRUE(sum[i] == expected || (std::isnan(sum[i]) && std::isnan(expected)))
          << a[i] << " + " << b[i] << " at " << i;
      EXPECT_TRUE(sum_of_halves[i] == expected ||
                  (std::isnan(sum_of_halves[i]) && std::isnan(expected)))
          << a[i] << " + " << b[i] << " at " << i;
    }
    AddOnWire(GetParam(), a.data(), b.data(), a.data(), count);  // in place
    EXPECT_EQ(std::memcmp(a.data(), sum.data(), count * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WireTypeTest, ::testing::Values(wire::BF16, wire::FP16),
                         [](const auto& info) { return wire::TensorType_Name(info.param); });

TEST(Bf16Test, KnownValues) {
  const std::vector<std::pair<float, uint32_t>> known = {
      {0.0f, 0x0000},        {-0.0f, 0x8000},          {1.0f, 0x3f80},
      {-2.0f, 0xc000},       {1 + 0x1p-8f, 0x3f80},  // a tie rounds to even
      {1 + 0x3p-8f, 0x3f82}, {1 + 0x1.02p-8f, 0x3f81}, {3.3895e38f, 0x7f7f},
      {3.4e38f, 0x7f80},     {kInfinity, 0x7f80},      {0x1p-133f, 0x0001}};
  for (const auto& [value, bits] : known) {
    uint16_t half;
    (void)Narrow(wire::BF16, {&value, 1}, &half);
    EXPECT_EQ(half, bits) << value;
  }
}

TEST(Fp16Test, KnownValues) {
  const std::vector<std::pair<float, uint32_t>> known = {
      {0.0f, 0x0000},         {-0.0f, 0x8000},        {1.0f, 0x3c00},     {-2.0f, 0xc000},
      {1 + 0x1p-11f, 0x3c00}, {1 + 0x3p-11f, 0x3c02}, {65504, 0x7bff},    {65519, 0x7bff},
      {65520, 0x7c00},        {0x1p-14f, 0x0400},     {0x1p-24f, 0x0001}, {0x1p-25f, 0x0000},
      {0x1.8p-25f, 0x0001}};
  for (const auto& [value, bits] : known) {
    uint16_t half;
    (void)Narrow(wire::FP16, {&value, 1}, &half);
    EXPECT_EQ(half, bits) << value;
  }
}

TEST(Fp32Test, TravelsAsItIs) {
  std::vector<float> values = {1.2345678f, 1e-40f, 3e38f};
  const std::vector<float> before = values;
  RoundToWire(wire::FP32, values);
  EXPECT_EQ(values, before);
  AddOnWire(wire::FP32, values.data(), values.data(), values.data(), 1);
  EXPECT_EQ(values[0], before[0] + before[0]);
}

}  // namespace
}  // namespace muster
