// Products of matrices that lie in panels: a matrix of rows x channels as [channels / 8][row][8],
// so that the innermost loops read memory in order and nothing is packed before they start.
//
// One matrix product is cut into strips of up to three panels of its result; different strips may
// be computed by different threads, and the bits depend on neither.
#pragma once

#include <cstdint>

#include "common/plan/slices.h"

namespace muster::cpu {

// A matrix in panels; `panel` is the distance of two panels, in floats, at least 8 x rows.
struct Panels {
  float* data;
  int64_t panel;
};
struct ConstPanels {
  ConstPanels(const float* data, int64_t panel) : data(data), panel(panel) {}
  ConstPanels(const Panels& p) : data(p.data), panel(p.panel) {}
  const float* data;
  int64_t panel;
};

// How many strips a result of that many panels has, and the panels of one. With AVX2 two or three
// (one where there is only one), so that their sums and operands fill its 16 registers; with
// AVX-512 as many pairs of them.
int64_t StripCount(int64_t panels);
Range Strip(int64_t panels, int64_t strip);

// out[r][k] = Σ_c a[r][c] b[c][k] where `first`, else += it, for the panels `strip` of k (counted
// in the whole of b and out).
//   a: rows x channels; b: channels x outputs, its rows the channels; out: rows x outputs.
// `channels` is a multiple of 8. Each sum goes over c in order, from what is there.
void MultiplyStrip(const ConstPanels& a, const ConstPanels& b, const Panels& out, int64_t rows,
                   int64_t channels, const Range& strip, bool first);

// sums[k][c] += Σ_r a[r][k] b[r][c], or = where `first`, for the panels `strip` of c.
//   a: rows x outputs; b: rows x channels; sums: plain, with `row` floats from one k to the next.
// `outputs` is a multiple of 8. Sums over r in order, and adds the sum to what is there.
void AddOuterStrip(const ConstPanels& a, const ConstPanels& b, float* sums, int64_t row,
                   int64_t rows, int64_t outputs, const Range& strip, bool first);

}  // namespace muster::cpu
