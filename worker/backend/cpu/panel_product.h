// Products of matrices that are stored in panels: a matrix of rows x channels is stored as
// [channels / 8][row][8], so that the innermost loops read memory sequentially without packing.
//
// A matrix product is cut into strips of up to three panels of its result. Strips may be computed
// by different threads; the bits depend neither on threads nor on strips.
#pragma once

#include <cstdint>

#include "common/plan/slices.h"

namespace muster::cpu {

// A matrix in panels; `panel` is the distance between panels in floats, at least 8 x rows.
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

// The number of strips of a result with `panels` panels, and the panels of one strip. With AVX2 a
// strip has two or three panels (or a single one), so that sums and operands fill the 16 registers;
// with AVX-512 it has as many pairs of panels.
int64_t StripCount(int64_t panels);
Range Strip(int64_t panels, int64_t strip);

// out[r][k] = Σ_c a[r][c] b[c][k] if `first`, else +=, for the panels `strip` of k, counted within
// all of b and out.
//   a: rows x channels; b: channels x outputs, its rows the channels; out: rows x outputs.
// `channels` is a multiple of 8. Each sum starts from the initial value and adds in the order of c.
void MultiplyStrip(const ConstPanels& a, const ConstPanels& b, const Panels& out, int64_t rows,
                   int64_t channels, const Range& strip, bool first);

// sums[k][c] += Σ_r a[r][k] b[r][c], or = if `first`, for the panels `strip` of c.
//   a: rows x outputs; b: rows x channels; sums: row-major, with `row` floats from one k to the
//   next.
// `outputs` is a multiple of 8. Each sum is computed in the order of r and then added to the
// previous value.
void AddOuterStrip(const ConstPanels& a, const ConstPanels& b, float* sums, int64_t row,
                   int64_t rows, int64_t outputs, const Range& strip, bool first);

}  // namespace muster::cpu
