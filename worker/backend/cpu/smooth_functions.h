// Smooth functions of a float, computed in double from additions, multiplications and divisions
// only. Loops with them vectorize, and without contraction (-ffp-contract=off) their bits depend
// neither on the instruction set nor on the C library. The relative error is below 3e-9, so a
// result that is rounded to float is within 0.6 units in the last place. NaN gives NaN.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace muster::cpu {

// Σ coefficients[i] xⁱ
template <int kCount>
inline double Polynomial(const double (&coefficients)[kCount], double x) {
  double sum = coefficients[kCount - 1];
  for (int i = kCount - 2; i >= 0; --i) sum = sum * x + coefficients[i];
  return sum;
}

// exp(x) = scale + part, where scale is a power of 2. Adding a number to `scale` first loses no
// digits: exp(x) - 1 is (scale - 1) + part.
struct Exponential {
  double scale, part;
  double value() const { return scale + part; }
};

// x is limited to ±708, beyond which exp(x) is not a normal double.
inline Exponential Exp(double x) {
  constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;
  constexpr double kRound = 0x1.8p52;  // adding it rounds to an integer, in the lowest bits
  constexpr double kTaylor[] = {1.0,       1.0 / 2,    1.0 / 6,     1.0 / 24,    1.0 / 120,
                                1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880};
  x = x < -708 ? -708 : x;
  x = x > 708 ? 708 : x;
  const double rounded = x * kLog2E + kRound;
  const double rest = x - (rounded - kRound) * kLn2;
  const auto exponent = (std::bit_cast<uint64_t>(rounded) << 52) + (uint64_t{1023} << 52);
  const auto scale = std::bit_cast<double>(exponent);
  return {scale, scale * (rest * Polynomial(kTaylor, rest))};
}

// 1 / (1 + exp(-x))
inline double Sigmoid(double x) { return 1 / (1 + Exp(-x).value()); }

inline double Tanh(double x) {
  const Exponential e = Exp(2 * x);
  const double less_one = e.scale - 1 + e.part;
  return less_one / (less_one + 2);
}

// The standard normal distribution: its density φ(x), and Φ(x), the probability of a value below x.
struct Normal {
  double density, below;
};

inline Normal NormalAt(double x) {
  constexpr double kInverseRoot = 0.3989422804014327;  // 1 / √(2π)
  // Φ(-a) exp(a²/2) / t, where t = 1 / (1 + a / 4), as a polynomial of t that interpolates at 12
  // Chebyshev nodes in [0, 1].
  constexpr double kTail[] = {0.099735570506156,    0.09973545269256237,  0.09350782212670929,
                              0.08092394500730096,  0.0646360941013879,   0.03636055164243692,
                              0.05009300049692606,  -0.06078649393408437, 0.11024469412043426,
                              -0.12464849910139246, 0.06145113222872032,  -0.011253270228281168};
  const double power = Exp(-0.5 * x * x).value();
  const double t = 1 / (1 + 0.25 * std::abs(x));
  const double tail = power * (t * Polynomial(kTail, t));
  return {kInverseRoot * power, x < 0 ? tail : 1 - tail};
}

}  // namespace muster::cpu
