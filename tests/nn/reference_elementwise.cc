// Functions of one element, in double, with the C library's exp, erf and tanh.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/nn/reference.h"

namespace muster::reference {
namespace {

constexpr double kInverseRootOfTwoPi = std::numbers::inv_sqrtpi / std::numbers::sqrt2;

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

Curve At(const ReluSpec&, double x) { return {std::max(0.0, x), x > 0 ? 1.0 : 0.0}; }
Curve At(const Relu6Spec&, double x) {
  return {std::clamp(x, 0.0, 6.0), x > 0 && x < 6 ? 1.0 : 0.0};
}
Curve At(const GeluSpec& gelu, double x) {
  if (gelu.tanh) {
    const double root = 2 * kInverseRootOfTwoPi;  // √(2/π)
    const double u = root * (x + 0.044715 * std::pow(x, 3));
    const double u_slope = root * (1 + 3 * 0.044715 * x * x);
    const double share =
        Logistic(2 * u);  // (1 + tanh(u)) / 2, which would lose its digits for u below 0
    return {x * share, share + x * share * Logistic(-2 * u) * 2 * u_slope};
  }
  const double below = std::erfc(-x / std::numbers::sqrt2) / 2;
  return {x * below, below + x * kInverseRootOfTwoPi * std::exp(-x * x / 2)};
}
Curve At(const SiluSpec&, double x) {
  const double s = Logistic(x);
  return {x * s, s + x * s * Logistic(-x)};
}
Curve At(const SigmoidSpec&, double x) { return {Logistic(x), Logistic(x) * Logistic(-x)}; }
Curve At(const TanhSpec&, double x) { return {std::tanh(x), 1 / std::pow(std::cosh(x), 2)}; }
Curve At(const LeakyReluSpec& leaky, double x) {
  const double slope = x > 0 ? 1 : leaky.slope;
  return {slope * x, slope};
}

}  // namespace

std::optional<Curve> ElementwiseAt(const LayerSpec& layer, double x) {
  return std::visit(
      [x](const auto& spec) -> std::optional<Curve> {
        if constexpr (requires { At(spec, x); }) return At(spec, x);
        return std::nullopt;
      },
      layer);
}

}  // namespace muster::reference
