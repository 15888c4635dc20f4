// The small transforms of Winograd's minimal filtering F(2x2, 3x3), on vectors of channels.
//
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (arXiv 1509.09308), section
// 4.1: a 2x2 square of outputs y of a 3x3 filter g over a 4x4 square of inputs d is
//
//   y = A' [(G g G') * (B' d B)] A,      * element by element, ' transposed,
//
//        1  0 -1  0           1   0   0
//   B' = 0  1  1  0      G = 1/2 1/2 1/2     A' = 1  1  1  0
//        0 -1  1  0          1/2 -1/2 1/2         0  1 -1 -1
//        0  1  0 -1           0   0   1
//
// This takes 16 products instead of 36, and over many channels the products of each of the 16
// positions are one matrix product. The derivative uses the same matrices transposed: dg = G' [(A
// dy A') * (B' d B)] G, where dy is 2x2.
//
// The transforms use only additions and halving, so rounding stays near that of the direct sum, and
// a non-finite value makes every result that it contributes to non-finite.
//
// get(row, column) returns a vector, and put(position, vector) stores one; positions are counted
// row by row.
#pragma once

#include "worker/backend/cpu/vec.h"

namespace muster::cpu::winograd {

constexpr int kPositions = 16;

// B' d B: 4x4 → 4x4.
template <typename Get, typename Put>
inline void TransformInput(const Get& get, const Put& put) {
  FloatVec t[4][4];
  for (int j = 0; j < 4; ++j) {
    const FloatVec d0 = get(0, j), d1 = get(1, j), d2 = get(2, j), d3 = get(3, j);
    t[0][j] = d0 - d2;
    t[1][j] = d1 + d2;
    t[2][j] = d2 - d1;
    t[3][j] = d1 - d3;
  }
  for (int i = 0; i < 4; ++i) {
    put(4 * i, t[i][0] - t[i][2]);
    put(4 * i + 1, t[i][1] + t[i][2]);
    put(4 * i + 2, t[i][2] - t[i][1]);
    put(4 * i + 3, t[i][1] - t[i][3]);
  }
}

// A' m A: 4x4 → 2x2.
template <typename Get, typename Put>
inline void TransformOutput(const Get& get, const Put& put) {
  FloatVec t[2][4];
  for (int j = 0; j < 4; ++j) {
    const FloatVec m1 = get(1, j), m2 = get(2, j);
    t[0][j] = get(0, j) + m1 + m2;
    t[1][j] = m1 - m2 - get(3, j);
  }
  for (int i = 0; i < 2; ++i) {
    put(2 * i, t[i][0] + t[i][1] + t[i][2]);
    put(2 * i + 1, t[i][1] - t[i][2] - t[i][3]);
  }
}

// A dy A': 2x2 → 4x4.
template <typename Get, typename Put>
inline void TransformOutputGradient(const Get& get, const Put& put) {
  FloatVec t[4][2];
  for (int j = 0; j < 2; ++j) {
    const FloatVec y0 = get(0, j), y1 = get(1, j);
    t[0][j] = y0;
    t[1][j] = y0 + y1;
    t[2][j] = y0 - y1;
    t[3][j] = -y1;
  }
  for (int i = 0; i < 4; ++i) {
    put(4 * i, t[i][0]);
    put(4 * i + 1, t[i][0] + t[i][1]);
    put(4 * i + 2, t[i][0] - t[i][1]);
    put(4 * i + 3, -t[i][1]);
  }
}

// G g G': 3x3 → 4x4.
template <typename Get, typename Put>
inline void TransformWeights(const Get& get, const Put& put) {
  FloatVec t[4][3];
  for (int j = 0; j < 3; ++j) {
    const FloatVec g0 = get(0, j), g1 = get(1, j), g2 = get(2, j);
    const FloatVec even = (g0 + g2) * 0.5f, odd = g1 * 0.5f;
    t[0][j] = g0;
    t[1][j] = even + odd;
    t[2][j] = even - odd;
    t[3][j] = g2;
  }
  for (int i = 0; i < 4; ++i) {
    const FloatVec even = (t[i][0] + t[i][2]) * 0.5f, odd = t[i][1] * 0.5f;
    put(4 * i, t[i][0]);
    put(4 * i + 1, even + odd);
    put(4 * i + 2, even - odd);
    put(4 * i + 3, t[i][2]);
  }
}

// G' u G: 4x4 → 3x3.
template <typename Get, typename Put>
inline void TransformWeightsGradient(const Get& get, const Put& put) {
  FloatVec t[3][4];
  for (int j = 0; j < 4; ++j) {
    const FloatVec u1 = get(1, j) * 0.5f, u2 = get(2, j) * 0.5f;
    t[0][j] = get(0, j) + (u1 + u2);
    t[1][j] = u1 - u2;
    t[2][j] = (u1 + u2) + get(3, j);
  }
  for (int i = 0; i < 3; ++i) {
    const FloatVec t1 = t[i][1] * 0.5f, t2 = t[i][2] * 0.5f;
    put(3 * i, t[i][0] + (t1 + t2));
    put(3 * i + 1, t1 - t2);
    put(3 * i + 2, (t1 + t2) + t[i][3]);
  }
}

}  // namespace muster::cpu::winograd
