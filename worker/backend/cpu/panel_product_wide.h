// The products of panel_product.h for AVX-512, with vectors of 16 floats from two panels. 8 x 3 of
// the 32 registers hold sums. The order of additions and thus the bits are the same as with 8
// floats.
//
// Everything here has internal linkage and calls no outside functions: this code is compiled for
// instructions that other files must not use, so the linker must not use its copies for them.
// (Compiled without AVX-512, each operation becomes two on 8 floats; the tests use this.)
#pragma once

#include <cstdint>

namespace muster::cpu {
namespace {
namespace wide {

constexpr int64_t kPanelFloats = 8, kRows = 8;
using Pair = float __attribute__((vector_size(64)));
using Panel = float __attribute__((vector_size(32)));

// The offsets of a pair of panels. If the number of panels is odd, the last pair holds one panel
// twice: its sums are computed twice and stored twice in the same place.
struct PairAt {
  int64_t low, high;  // offsets
};
inline PairAt At(int64_t pair, int64_t panels, int64_t distance) {
  const int64_t high = 2 * pair + 1 < panels ? 2 * pair + 1 : 2 * pair;
  return {2 * pair * distance, high * distance};
}
inline Pair Load(const float* from, const PairAt& at) {
  Panel low, high;
  __builtin_memcpy(&low, from + at.low, sizeof low);
  __builtin_memcpy(&high, from + at.high, sizeof high);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
inline void Store(float* to, const PairAt& at, Pair pair) {
  const Panel low = __builtin_shufflevector(pair, pair, 0, 1, 2, 3, 4, 5, 6, 7);
  const Panel high = __builtin_shufflevector(pair, pair, 8, 9, 10, 11, 12, 13, 14, 15);
  __builtin_memcpy(to + at.low, &low, sizeof low);
  __builtin_memcpy(to + at.high, &high, sizeof high);
}
inline Pair Broadcast(float value) { return value - Pair{}; }

template <int kBlock, int kPairs>
void MultiplyBlock(const float* a, int64_t a_panel, const float* b, int64_t b_panel, float* out,
                   int64_t out_panel, int64_t channels, int64_t panels, bool first) {
  PairAt in[kPairs], result[kPairs];
  Pair sums[kBlock][kPairs] = {};
  for (int p = 0; p < kPairs; ++p) {
    in[p] = At(p, panels, b_panel);
    result[p] = At(p, panels, out_panel);
    for (int r = 0; r < kBlock && !first; ++r) {
      sums[r][p] = Load(out + r * kPanelFloats, result[p]);
    }
  }
  for (int64_t c = 0; c < channels; c += kPanelFloats, a += a_panel) {
#pragma GCC unroll 1
    for (int64_t lane = 0; lane < kPanelFloats; ++lane, b += kPanelFloats) {
      Pair row[kPairs];
      for (int p = 0; p < kPairs; ++p) row[p] = Load(b, in[p]);
      for (int r = 0; r < kBlock; ++r) {
        const Pair value = Broadcast(a[r * kPanelFloats + lane]);
        for (int p = 0; p < kPairs; ++p) sums[r][p] += value * row[p];
      }
    }
  }
  for (int r = 0; r < kBlock; ++r) {
    for (int p = 0; p < kPairs; ++p) Store(out + r * kPanelFloats, result[p], sums[r][p]);
  }
}

template <int kPairs>
void Multiply(const float* a, int64_t a_panel, const float* b, int64_t b_panel, float* out,
              int64_t out_panel, int64_t rows, int64_t channels, int64_t panels, bool first) {
  // The number of rows of the strip of b that fit into the L1 cache while those of a are read.
  constexpr int64_t kChannels = 128;
  for (int64_t c = 0; c < channels; c += kChannels) {
    const int64_t count = channels - c < kChannels ? channels - c : kChannels;
    const float* const a_part = a + c / kPanelFloats * a_panel;
    const float* const b_part = b + c * kPanelFloats;
    int64_t r = 0;
    for (; r + kRows <= rows; r += kRows) {
      MultiplyBlock<kRows, kPairs>(a_part + r * kPanelFloats, a_panel, b_part, b_panel,
                                   out + r * kPanelFloats, out_panel, count, panels,
                                   first && c == 0);
    }
    for (; r < rows; ++r) {
      MultiplyBlock<1, kPairs>(a_part + r * kPanelFloats, a_panel, b_part, b_panel,
                               out + r * kPanelFloats, out_panel, count, panels, first && c == 0);
    }
  }
}

template <int kPairs>
void AddOuter(const float* a, int64_t a_panel, const float* b, int64_t b_panel, float* sums,
              int64_t row, int64_t rows, int64_t outputs, int64_t panels, bool first) {
  PairAt in[kPairs], result[kPairs];
  for (int p = 0; p < kPairs; ++p) {
    in[p] = At(p, panels, b_panel);
    result[p] = At(p, panels, kPanelFloats);
  }
  for (int64_t k = 0; k < outputs; k += kRows) {
    const float* const values = a + k / kPanelFloats * a_panel;
    Pair sum[kRows][kPairs] = {};
    for (int64_t r = 0; r < rows; ++r) {
      Pair vectors[kPairs];
      for (int p = 0; p < kPairs; ++p) vectors[p] = Load(b + r * kPanelFloats, in[p]);
      for (int i = 0; i < kRows; ++i) {
        const Pair value = Broadcast(values[r * kPanelFloats + i]);
        for (int p = 0; p < kPairs; ++p) sum[i][p] += value * vectors[p];
      }
    }
    for (int i = 0; i < kRows; ++i) {
      float* const to = sums + (k + i) * row;
      for (int p = 0; p < kPairs; ++p) {
        Store(to, result[p], first ? sum[i][p] : Load(to, result[p]) + sum[i][p]);
      }
    }
  }
}

// MultiplyStrip and AddOuterStrip for a strip of 1 to 6 panels. b, out and sums begin at this
// strip.
inline void MultiplyPanels(const float* a, int64_t a_panel, const float* b, int64_t b_panel,
                           float* out, int64_t out_panel, int64_t rows, int64_t channels,
                           int64_t panels, bool first) {
  const auto multiply = panels > 4 ? Multiply<3> : panels > 2 ? Multiply<2> : Multiply<1>;
  multiply(a, a_panel, b, b_panel, out, out_panel, rows, channels, panels, first);
}
inline void AddOuterPanels(const float* a, int64_t a_panel, const float* b, int64_t b_panel,
                           float* sums, int64_t row, int64_t rows, int64_t outputs, int64_t panels,
                           bool first) {
  const auto add = panels > 4 ? AddOuter<3> : panels > 2 ? AddOuter<2> : AddOuter<1>;
  add(a, a_panel, b, b_panel, sums, row, rows, outputs, panels, first);
}

}  // namespace wide
}  // namespace
}  // namespace muster::cpu
