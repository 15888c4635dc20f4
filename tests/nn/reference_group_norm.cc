// Normalisation of each sample or pixel on its own, value by value.
#include <cmath>

#include "tests/nn/reference.h"

namespace muster::reference {
namespace {

struct GroupNormalisation {
  explicit GroupNormalisation(const Layer& layer)
      : spec(std::get<GroupNormSpec>(layer.spec)),
        channels(static_cast<size_t>(layer.input_shape.channels)),
        pixels(spec.per_pixel ? 1 : static_cast<size_t>(layer.input_shape.elements()) / channels),
        width(channels / static_cast<size_t>(spec.groups)) {}

  size_t GroupOf(size_t i) const {
    return i / (pixels * channels) * static_cast<size_t>(spec.groups) + i % channels / width;
  }
  // The mean of each group, at each of its values.
  Doubles Means(const Doubles& values) const {
    Doubles sums(values.size() / (pixels * width)), means(values.size());
    for (size_t i = 0; i < values.size(); ++i) sums[GroupOf(i)] += values[i];
    for (size_t i = 0; i < values.size(); ++i) {
      means[i] = sums[GroupOf(i)] / static_cast<double>(pixels * width);
    }
    return means;
  }
  Doubles InverseDeviations(const Doubles& x) const {
    const Doubles means = Means(x);
    Doubles squares(x.size());
    for (size_t i = 0; i < x.size(); ++i) squares[i] = std::pow(x[i] - means[i], 2);
    Doubles inverse = Means(squares);
    for (double& value : inverse) value = 1 / std::sqrt(value + spec.epsilon);
    return inverse;
  }
  Doubles Normalised(const Doubles& x) const {
    const Doubles means = Means(x), inverse = InverseDeviations(x);
    Doubles h(x.size());
    for (size_t i = 0; i < x.size(); ++i) h[i] = (x[i] - means[i]) * inverse[i];
    return h;
  }

  const GroupNormSpec& spec;
  const size_t channels, pixels, width;
};

}  // namespace

Doubles GroupNormForward(const Layer& layer, const Doubles& x, const Context& context) {
  const GroupNormalisation norm(layer);
  Doubles y = norm.Normalised(x);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = y[i] * context.weights[i % norm.channels] + context.bias[i % norm.channels];
  }
  return y;
}

Gradients GroupNormBackward(const Layer& layer, const Doubles& x, const Doubles& dy,
                            const Context& context) {
  const GroupNormalisation norm(layer);
  const Doubles h = norm.Normalised(x), inverse = norm.InverseDeviations(x);
  Gradients g{{Doubles(x.size())}, Doubles(norm.channels), Doubles(norm.channels)};
  Doubles dh(x.size()), products(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    g.weights[i % norm.channels] += dy[i] * h[i];
    g.bias[i % norm.channels] += dy[i];
    dh[i] = dy[i] * context.weights[i % norm.channels];
    products[i] = dh[i] * h[i];
  }
  const Doubles mean = norm.Means(dh), product = norm.Means(products);
  for (size_t i = 0; i < x.size(); ++i) {
    g.inputs[0][i] = inverse[i] * (dh[i] - mean[i] - h[i] * product[i]);
  }
  return g;
}

}  // namespace muster::reference
