// The accuracy and the bits of the smooth elementwise functions on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

const char* const kSmooth[] = {"gelu {}", "gelu { approximate: TANH }", "silu {}", "sigmoid {}",
                               "tanh {}"};

// Numbers from -40 to 40 with more and more of them towards 0.
std::vector<float> Arguments() {
  std::vector<float> x;
  for (int i = -20000; i <= 20000; ++i) {
    const double part = i / 20000.0;
    x.push_back(static_cast<float>(40 * part * part * part));
  }
  return x;
}

struct Results {
  std::vector<float> output, gradient;
  bool operator==(const Results&) const = default;
};

Results Compute(Backend& backend, const std::string& layer, const std::vector<float>& x,
                const std::vector<float>& dy) {
  const OpCase c{.layer = layer, .input = {1, 1, static_cast<int64_t>(x.size())}};
  const OpResult r = RunOp(backend, c, {.inputs = {x}, .dy = dy});
  const auto floats = [](const Arena& arena) {
    return std::vector<float>(arena.floats().begin(), arena.floats().end());
  };
  return {floats(r.output), floats(r.dx[0])};
}

// The distance of two adjacent floats at `value`.
double UnitAt(double value) { return std::ldexp(1.0, std::ilogb(value) - 23); }

TEST(SmoothFunctions, AreWithinOneUnitInTheLastPlace) {
  const auto backend = MakeTestBackend(1);
  const std::vector<float> x = Arguments();
  for (const char* const layer : kSmooth) {
    const LayerSpec spec = reference::MakeLayer(layer, Shape{1, 1, 1}).spec;
    const Results run = Compute(*backend, layer, x, std::vector<float>(x.size(), 1));
    constexpr float kLeast = std::numeric_limits<float>::min();
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const reference::Curve exact = *reference::ElementwiseAt(spec, x[i]);
      if (std::abs(exact.value) < kLeast) {  // which the processor may round to 0
        EXPECT_LE(std::abs(run.output[i]), kLeast) << layer << " at " << x[i];
      } else {
        worst = std::max(worst, std::abs(run.output[i] - exact.value) / UnitAt(exact.value));
      }
      // A slope is a sum of terms of about 1, or computed from the rounded output.
      EXPECT_NEAR(run.gradient[i], exact.slope, 1.3e-7) << layer << " at " << x[i];
    }
    EXPECT_LT(worst, 1) << layer;
  }
}

// The widths of vectors and the number of threads divide the elements in different ways.
TEST(SmoothFunctions, HaveTheSameBitsAloneAndAmongMany) {
  const std::vector<float> x = Arguments(), dy = RandomFloats(x.size(), 3);
  for (const char* const layer : kSmooth) {
    const auto one = MakeTestBackend(1);
    const Results all = Compute(*one, layer, x, dy);
    EXPECT_EQ(all, Compute(*MakeTestBackend(2), layer, x, dy)) << layer;
    Results apart;
    for (size_t begin = 0, size = 1; begin < x.size(); begin += size, size = size % 17 + 1) {
      const size_t end = std::min(begin + size, x.size());
      const Results part = Compute(*one, layer, {x.begin() + begin, x.begin() + end},
                                   {dy.begin() + begin, dy.begin() + end});
      apart.output.insert(apart.output.end(), part.output.begin(), part.output.end());
      apart.gradient.insert(apart.gradient.end(), part.gradient.begin(), part.gradient.end());
    }
    EXPECT_EQ(all, apart) << layer;
  }
}

}  // namespace
}  // namespace muster
