#include "worker/backend/cpu/panel_product.h"

#include <algorithm>

#include "worker/backend/cpu/panel_product_avx512.h"
#include "worker/backend/cpu/vec.h"

namespace muster::cpu {
namespace {

// A block of 4 x 3 vectors of sums: 12 registers, three for a row of b and one for a value of a. It
// takes seven loads for twelve multiply-adds.
constexpr int kBlockRows = 4;

template <int kRows, int kPanels>
void MultiplyBlock(const float* a, int64_t a_panel, const float* b, int64_t b_panel, float* out,
                   int64_t out_panel, int64_t channels, bool first) {
  FloatVec sums[kRows][kPanels] = {};
  if (!first) {
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPanels; ++p) sums[r][p] = LoadFloats(out + p * out_panel + r * kLanes);
    }
  }
  for (int64_t c = 0; c < channels; c += kLanes, a += a_panel) {
// With more unrolling GCC 12 runs out of registers.
#pragma GCC unroll 1
    for (int64_t lane = 0; lane < kLanes; ++lane, b += kLanes) {
      FloatVec row[kPanels];
      for (int p = 0; p < kPanels; ++p) row[p] = LoadFloats(b + p * b_panel);
      for (int r = 0; r < kRows; ++r) {
        const FloatVec value = Broadcast(a[r * kLanes + lane]);
        for (int p = 0; p < kPanels; ++p) sums[r][p] += value * row[p];
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) Store(out + p * out_panel + r * kLanes, sums[r][p]);
  }
}

template <int kPanels>
void MultiplyRows(const ConstPanels& a, const float* b, int64_t b_panel, float* out,
                  int64_t out_panel, int64_t rows, int64_t channels, bool first) {
  const auto block = [&]<int kRows>(int64_t r) {
    MultiplyBlock<kRows, kPanels>(a.data + r * kLanes, a.panel, b, b_panel, out + r * kLanes,
                                  out_panel, channels, first);
  };
  int64_t r = 0;
  for (; r + kBlockRows <= rows; r += kBlockRows) block.template operator()<kBlockRows>(r);
  for (; r < rows; ++r) block.template operator()<1>(r);
}

template <int kPanels>
void AddOuterBlock(const float* a, const float* b, int64_t b_panel, float* sums, int64_t row,
                   int64_t rows, bool first) {
  FloatVec sum[kBlockRows][kPanels] = {};
  for (int64_t r = 0; r < rows; ++r, a += kLanes, b += kLanes) {
    FloatVec values[kPanels];
    for (int p = 0; p < kPanels; ++p) values[p] = LoadFloats(b + p * b_panel);
    for (int k = 0; k < kBlockRows; ++k) {
      const FloatVec value = Broadcast(a[k]);
      for (int p = 0; p < kPanels; ++p) sum[k][p] += value * values[p];
    }
  }
  for (int k = 0; k < kBlockRows; ++k) {
    for (int p = 0; p < kPanels; ++p) {
      float* const to = sums + k * row + p * kLanes;
      Store(to, first ? sum[k][p] : LoadFloats(to) + sum[k][p]);
    }
  }
}

// Calls body with the number of panels as a constant.
template <typename Body>
void ForPanels(int64_t panels, const Body& body) {
  switch (panels) {
    case 1:
      return body.template operator()<1>();
    case 2:
      return body.template operator()<2>();
    default:
      return body.template operator()<3>();
  }
}

// Whether this processor computes two panels together.
bool IsWide() {
#ifdef __x86_64__
  static const bool wide = __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return wide;
#else
  return false;
#endif
}

// The number of units that strips are made of: panels, or pairs of panels.
int64_t Pieces(int64_t panels) { return IsWide() ? (panels + 1) / 2 : panels; }

}  // namespace

int64_t StripCount(int64_t panels) { return (Pieces(panels) + 2) / 3; }

Range Strip(int64_t panels, int64_t strip) {
  const Range pieces = EvenPart(Pieces(panels), StripCount(panels), strip);
  if (!IsWide()) return pieces;
  return {2 * pieces.begin, std::min(2 * pieces.end, panels)};
}

void MultiplyStrip(const ConstPanels& a, const ConstPanels& b, const Panels& out, int64_t rows,
                   int64_t channels, const Range& strip, bool first) {
#ifdef __x86_64__
  if (IsWide()) {
    return MultiplyPanelsAvx512(a.data, a.panel, b.data + strip.begin * b.panel, b.panel,
                                out.data + strip.begin * out.panel, out.panel, rows, channels,
                                strip.size(), first);
  }
#endif
  // The number of rows of a strip of b that fit into the L1 cache while those of a are read.
  constexpr int64_t kChannels = 256;
  ForPanels(strip.size(), [&]<int kPanels>() {
    for (int64_t c = 0; c < channels; c += kChannels) {
      MultiplyRows<kPanels>({a.data + c / kLanes * a.panel, a.panel},
                            b.data + strip.begin * b.panel + c * kLanes, b.panel,
                            out.data + strip.begin * out.panel, out.panel, rows,
                            std::min(kChannels, channels - c), first && c == 0);
    }
  });
}

void AddOuterStrip(const ConstPanels& a, const ConstPanels& b, float* sums, int64_t row,
                   int64_t rows, int64_t outputs, const Range& strip, bool first) {
#ifdef __x86_64__
  if (IsWide()) {
    return AddOuterPanelsAvx512(a.data, a.panel, b.data + strip.begin * b.panel, b.panel,
                                sums + strip.begin * kLanes, row, rows, outputs, strip.size(),
                                first);
  }
#endif
  ForPanels(strip.size(), [&]<int kPanels>() {
    for (int64_t k = 0; k < outputs; k += kBlockRows) {
      AddOuterBlock<kPanels>(a.data + k / kLanes * a.panel + k % kLanes,
                             b.data + strip.begin * b.panel, b.panel,
                             sums + k * row + strip.begin * kLanes, row, rows, first);
    }
  });
}

}  // namespace muster::cpu
