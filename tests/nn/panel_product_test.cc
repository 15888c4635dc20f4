// Matrix products in panels. Compared with plain sums, and bit by bit with the AVX-512 version,
// which has two panels per vector. That version is compiled for AVX2 here, so its logic is tested
// on any processor, its instructions only with AVX-512.
#include "worker/backend/cpu/panel_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/nn/op_case.h"
#include "worker/backend/cpu/panel_product_wide.h"
#include "worker/backend/cpu/vec.h"

namespace muster::cpu {
namespace {

constexpr int64_t kPadding = 16;  // after each panel

struct Matrix {
  Matrix(int64_t rows, int64_t channels, uint32_t seed)
      : panel(rows * kLanes + kPadding),
        values(RandomFloats(static_cast<size_t>(channels / kLanes * panel), seed)) {}
  float& At(int64_t row, int64_t channel) {
    return values[static_cast<size_t>(channel / kLanes * panel + row * kLanes + channel % kLanes)];
  }
  Panels panels() { return {values.data(), panel}; }
  int64_t panel;
  std::vector<float> values;
};

class PanelProductTest : public testing::TestWithParam<int64_t> {};  // panels of the result

TEST_P(PanelProductTest, Multiplies) {
  const int64_t panels = GetParam();
  for (const int64_t rows : {1, 4, 7, 8, 9, 30}) {
    for (const int64_t channels : {8, 16, 128, 136, 264}) {
      for (const bool first : {true, false}) {
        Matrix a(rows, channels, 1), b(channels, panels * kLanes, 2), out(rows, panels * kLanes, 3);
        Matrix wide_out = out, before = out;
        for (int64_t strip = 0; strip < StripCount(panels); ++strip) {
          MultiplyStrip(a.panels(), b.panels(), out.panels(), rows, channels, Strip(panels, strip),
                        first);
        }
        for (int64_t p = 0; p < panels; p += 6) {
          wide::MultiplyPanels(a.values.data(), a.panel, b.values.data() + p * b.panel, b.panel,
                               wide_out.values.data() + p * out.panel, out.panel, rows, channels,
                               std::min<int64_t>(6, panels - p), first);
        }
        ASSERT_EQ(wide_out.values, out.values) << rows << " x " << channels;  // including padding
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t k = 0; k < panels * kLanes; ++k) {
            double sum = first ? 0 : before.At(r, k), size = std::abs(sum);
            for (int64_t c = 0; c < channels; ++c) {
              const double product = static_cast<double>(a.At(r, c)) * b.At(c, k);
              sum += product;
              size += std::abs(product);
            }
            ASSERT_NEAR(out.At(r, k), sum, 2e-6 * size);
          }
        }
      }
    }
  }
}

TEST_P(PanelProductTest, AddsOuterProducts) {
  const int64_t panels = GetParam(), inputs = panels * kLanes;
  for (const int64_t rows : {1, 5, 64}) {
    for (const int64_t outputs : {8, 24}) {
      for (const bool first : {true, false}) {
        Matrix a(rows, outputs, 4), b(rows, inputs, 5);
        std::vector<float> sums = RandomFloats(static_cast<size_t>(outputs * inputs), 6);
        std::vector<float> wide_sums = sums;
        const std::vector<float> before = sums;
        for (int64_t strip = 0; strip < StripCount(panels); ++strip) {
          AddOuterStrip(a.panels(), b.panels(), sums.data(), inputs, rows, outputs,
                        Strip(panels, strip), first);
        }
        for (int64_t p = 0; p < panels; p += 6) {
          wide::AddOuterPanels(a.values.data(), a.panel, b.values.data() + p * b.panel, b.panel,
                               wide_sums.data() + p * kLanes, inputs, rows, outputs,
                               std::min<int64_t>(6, panels - p), first);
        }
        ASSERT_EQ(wide_sums, sums) << rows << ", " << outputs;
        for (int64_t k = 0; k < outputs; ++k) {
          for (int64_t c = 0; c < inputs; ++c) {
            const auto at = static_cast<size_t>(k * inputs + c);
            double sum = first ? 0 : before[at], size = std::abs(sum);
            for (int64_t r = 0; r < rows; ++r) {
              const double product = static_cast<double>(a.At(r, k)) * b.At(r, c);
              sum += product;
              size += std::abs(product);
            }
            ASSERT_NEAR(sums[at], sum, 2e-6 * size);
          }
        }
      }
    }
  }
}

TEST(StripTest, StripsCoverThePanelsOnce) {
  for (int64_t panels = 1; panels <= 64; ++panels) {
    int64_t next = 0;
    for (int64_t strip = 0; strip < StripCount(panels); ++strip) {
      const Range range = Strip(panels, strip);
      EXPECT_EQ(range.begin, next);
      EXPECT_GE(range.size(), 1);
      EXPECT_LE(range.size(), 6);
      next = range.end;
    }
    EXPECT_EQ(next, panels);
  }
}

INSTANTIATE_TEST_SUITE_P(Panels, PanelProductTest,
                         testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16));

}  // namespace
}  // namespace muster::cpu
