#include "tests/nn/reference.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "common/base/random.h"

namespace muster::reference {
namespace {

// Calls body(n, output offset, input offset, position in the window) for each pair of pixels that a
// window connects, in row-major order. Offsets are in pixels.
template <typename Spec>
void ForWindows(const Layer& layer, const Spec& spec, int64_t batch,
                const std::function<void(int64_t, int64_t, int64_t)>& body) {
  const Shape &in = layer.input_shape, &out = layer.output_shape;
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t o = 0; o < out.height; ++o)
      for (int64_t p = 0; p < out.width; ++p)
        for (int64_t k = 0; k < spec.kernel_height; ++k)
          for (int64_t l = 0; l < spec.kernel_width; ++l) {
            const int64_t i = o * spec.stride_height - spec.pads.top + k;
            const int64_t j = p * spec.stride_width - spec.pads.left + l;
            if (i < 0 || i >= in.height || j < 0 || j >= in.width) continue;
            body((n * out.height + o) * out.width + p, (n * in.height + i) * in.width + j,
                 k * spec.kernel_width + l);
          }
}

struct Conv {
  const Layer& layer;
  int64_t batch;
  const Context& context;
  const Conv2dSpec& spec = std::get<Conv2dSpec>(layer.spec);
  int64_t in = layer.input_shape.channels, out = layer.output_shape.channels;
  int64_t area = spec.kernel_height * spec.kernel_width;
  int64_t group_in = in / spec.groups, group_out = out / spec.groups;

  // The input channel for the c-th channel of filter f.
  int64_t Channel(int64_t f, int64_t c) const { return f / group_out * group_in + c; }
  Doubles Forward(const Doubles& x) const {
    Doubles y(batch * layer.output_shape.elements());
    for (size_t i = 0; i < y.size() && spec.use_bias; ++i) y[i] = context.bias[i % out];
    ForWindows(layer, spec, batch, [&](int64_t o, int64_t i, int64_t place) {
      for (int64_t f = 0; f < out; ++f)
        for (int64_t c = 0; c < group_in; ++c)
          y[o * out + f] +=
              context.weights[(f * area + place) * group_in + c] * x[i * in + Channel(f, c)];
    });
    return y;
  }
  Gradients Backward(const Doubles& x, const Doubles& dy) const {
    Gradients g{{Doubles(x.size())}, Doubles(out * area * group_in), {}};
    g.bias.resize(spec.use_bias ? out : 0);
    for (size_t i = 0; i < dy.size() && spec.use_bias; ++i) g.bias[i % out] += dy[i];
    ForWindows(layer, spec, batch, [&](int64_t o, int64_t i, int64_t place) {
      for (int64_t f = 0; f < out; ++f)
        for (int64_t c = 0; c < group_in; ++c) {
          const int64_t w = (f * area + place) * group_in + c, at = i * in + Channel(f, c);
          g.weights[w] += dy[o * out + f] * x[at];
          g.inputs[0][at] += dy[o * out + f] * context.weights[w];
        }
    });
    return g;
  }
};

struct FullyConnected {
  const Layer& layer;
  int64_t batch;
  const Context& context;
  bool use_bias = std::get<DenseSpec>(layer.spec).use_bias;
  int64_t in = layer.input_shape.elements(), out = layer.output_shape.elements();

  Doubles Forward(const Doubles& x) const {
    Doubles y(batch * out);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t f = 0; f < out; ++f) {
        double sum = use_bias ? context.bias[f] : 0;
        for (int64_t c = 0; c < in; ++c) sum += context.weights[f * in + c] * x[n * in + c];
        y[n * out + f] = sum;
      }
    return y;
  }
  Gradients Backward(const Doubles& x, const Doubles& dy) const {
    Gradients g{{Doubles(x.size())}, Doubles(out * in), Doubles(use_bias ? out : 0)};
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t f = 0; f < out; ++f) {
        if (use_bias) g.bias[f] += dy[n * out + f];
        for (int64_t c = 0; c < in; ++c) {
          g.weights[f * in + c] += dy[n * out + f] * x[n * in + c];
          g.inputs[0][n * in + c] += dy[n * out + f] * context.weights[f * in + c];
        }
      }
    return g;
  }
};

struct Pool {
  const Layer& layer;
  int64_t batch;
  const PoolSpec& spec = std::get<PoolSpec>(layer.spec);
  int64_t channels = layer.input_shape.channels;
  size_t outputs = batch * layer.output_shape.elements();

  // The position of each output's maximum; the first one if several are equal.
  std::vector<int64_t> Chosen(const Doubles& x) const {
    std::vector<int64_t> chosen(outputs, -1);
    ForWindows(layer, spec, batch, [&](int64_t o, int64_t i, int64_t) {
      for (int64_t c = 0; c < channels; ++c) {
        int64_t& best = chosen[o * channels + c];
        if (best < 0 || x[i * channels + c] > x[best]) best = i * channels + c;
      }
    });
    return chosen;
  }
  Doubles Counts() const {
    Doubles counts(outputs);
    ForWindows(layer, spec, batch, [&](int64_t o, int64_t, int64_t) {
      for (int64_t c = 0; c < channels; ++c) counts[o * channels + c] += 1;
    });
    return counts;
  }
  Doubles Forward(const Doubles& x) const {
    Doubles y(outputs);
    if (spec.kind == PoolSpec::Kind::kMax) {
      const auto chosen = Chosen(x);
      for (size_t o = 0; o < outputs; ++o) y[o] = x[chosen[o]];
      return y;
    }
    const Doubles counts = Counts();
    ForWindows(layer, spec, batch, [&](int64_t o, int64_t i, int64_t) {
      for (int64_t c = 0; c < channels; ++c)
        y[o * channels + c] += x[i * channels + c] / counts[o * channels + c];
    });
    return y;
  }
  Gradients Backward(const Doubles& x, const Doubles& dy) const {
    Gradients g{{Doubles(x.size())}, {}, {}};
    if (spec.kind == PoolSpec::Kind::kMax) {
      const auto chosen = Chosen(x);
      for (size_t o = 0; o < outputs; ++o) g.inputs[0][chosen[o]] += dy[o];
      return g;
    }
    const Doubles counts = Counts();
    ForWindows(layer, spec, batch, [&](int64_t o, int64_t i, int64_t) {
      for (int64_t c = 0; c < channels; ++c)
        g.inputs[0][i * channels + c] += dy[o * channels + c] / counts[o * channels + c];
    });
    return g;
  }
};

// dy flows back along the way that x took.
struct ReflectPadding {
  const Layer& layer;
  const ReflectPadSpec& spec = std::get<ReflectPadSpec>(layer.spec);

  // Calls body(output element, input element).
  template <typename Body>
  void ForElements(int64_t batch, const Body& body) const {
    const Shape &in = layer.input_shape, &out = layer.output_shape;
    const auto mirror = [](int64_t at, int64_t size) {
      if (at < 0) at = -at;
      return at >= size ? 2 * (size - 1) - at : at;
    };
    size_t o = 0;
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t i = 0; i < out.height; ++i)
        for (int64_t j = 0; j < out.width; ++j)
          for (int64_t c = 0; c < in.channels; ++c, ++o) {
            const int64_t row = mirror(i - spec.rows, in.height),
                          column = mirror(j - spec.columns, in.width);
            body(o, static_cast<size_t>(((n * in.height + row) * in.width + column) * in.channels +
                                        c));
          }
  }
};

struct ResponseNormalisation {
  const Layer& layer;
  int64_t batch;
  const LrnSpec& spec = std::get<LrnSpec>(layer.spec);
  int64_t channels = layer.input_shape.channels;

  double N(const Doubles& x, int64_t pixel, int64_t c) const {
    double sum = 0;
    for (int64_t j = std::max<int64_t>(0, c - spec.depth_radius);
         j <= std::min(channels - 1, c + spec.depth_radius); ++j)
      sum += x[pixel + j] * x[pixel + j];
    return spec.bias + spec.alpha * sum;
  }
  Doubles Forward(const Doubles& x) const {
    Doubles y(x.size());
    for (int64_t at = 0; at < static_cast<int64_t>(x.size()); at += channels)
      for (int64_t c = 0; c < channels; ++c)
        y[at + c] = x[at + c] * std::pow(N(x, at, c), -double{spec.beta});
    return y;
  }
  // dx_j = Σ_c dy_c dy_c/dx_j, straight from the definition.
  Gradients Backward(const Doubles& x, const Doubles& dy) const {
    Gradients g{{Doubles(x.size())}, {}, {}};
    const double beta = spec.beta;
    for (int64_t at = 0; at < static_cast<int64_t>(x.size()); at += channels)
      for (int64_t c = 0; c < channels; ++c) {
        const double n = N(x, at, c);
        g.inputs[0][at + c] += dy[at + c] * std::pow(n, -beta);
        for (int64_t j = std::max<int64_t>(0, c - spec.depth_radius);
             j <= std::min(channels - 1, c + spec.depth_radius); ++j)
          g.inputs[0][at + j] -=
              dy[at + c] * x[at + c] * beta * std::pow(n, -beta - 1) * spec.alpha * 2 * x[at + j];
      }
    return g;
  }
};

struct BatchNormalisation {
  const Layer& layer;
  const Context& context;
  const BatchNormSpec& spec = std::get<BatchNormSpec>(layer.spec);
  size_t channels = static_cast<size_t>(layer.input_shape.channels);

  double Count(const Doubles& x) const {
    return static_cast<double>(x.size()) / static_cast<double>(channels);
  }
  // Statistics of each channel over the batch. The variance is divided by the number of values.
  Doubles Mean(const Doubles& x) const {
    Doubles mean(channels);
    for (size_t i = 0; i < x.size(); ++i) mean[i % channels] += x[i] / Count(x);
    return mean;
  }
  Doubles Variance(const Doubles& x) const {
    const Doubles mean = Mean(x);
    Doubles variance(channels);
    for (size_t i = 0; i < x.size(); ++i) {
      variance[i % channels] += std::pow(x[i] - mean[i % channels], 2) / Count(x);
    }
    return variance;
  }
  Doubles Normalised(const Doubles& x, const Doubles& mean, const Doubles& variance) const {
    Doubles y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % channels;
      y[i] = (x[i] - mean[c]) / std::sqrt(variance[c] + spec.epsilon);
    }
    return y;
  }
  Doubles Forward(const Doubles& x) const {
    Doubles y = context.training && !layer.frozen
                    ? Normalised(x, Mean(x), Variance(x))
                    : Normalised(x, context.running_mean, context.running_variance);
    for (size_t i = 0; i < y.size(); ++i) {
      y[i] = context.weights[i % channels] * y[i] + context.bias[i % channels];
    }
    return y;
  }
  Gradients Backward(const Doubles& x, const Doubles& dy) const {
    Gradients g{{Doubles(x.size())}, Doubles(channels), Doubles(channels)};
    g.mean = layer.frozen ? context.running_mean : Mean(x);
    g.variance = layer.frozen ? context.running_variance : Variance(x);
    const Doubles normalised = Normalised(x, g.mean, g.variance);
    const double n = Count(x);
    for (size_t i = 0; i < x.size(); ++i) {
      g.weights[i % channels] += dy[i] * normalised[i];
      g.bias[i % channels] += dy[i];
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % channels;
      const double through_statistics =
          layer.frozen ? 0 : g.bias[c] / n + normalised[i] * g.weights[c] / n;
      g.inputs[0][i] = context.weights[c] / std::sqrt(g.variance[c] + spec.epsilon) *
                       (dy[i] - through_statistics);
    }
    if (spec.unbiased && n > 1) {
      for (double& v : g.variance) v *= n / (n - 1);
    }
    return g;
  }
};

struct Joined {
  const Layer& layer;
  const std::vector<int64_t>& channels = std::get<ConcatSpec>(layer.spec).channels;

  // Calls body(input, its element, the output's element).
  void ForElements(size_t outputs, const std::function<void(size_t, size_t, size_t)>& body) const {
    const size_t pixels = outputs / static_cast<size_t>(layer.output_shape.channels);
    size_t at = 0;
    for (size_t p = 0; p < pixels; ++p)
      for (size_t j = 0; j < channels.size(); ++j) {
        const auto width = static_cast<size_t>(channels[j]);
        for (size_t c = 0; c < width; ++c) body(j, p * width + c, at++);
      }
  }
};

// The dropout factor of each element.
Doubles DropoutFactors(const Layer& layer, int64_t batch, const Context& context) {
  const int64_t elements = layer.input_shape.elements();
  const float rate = std::get<DropoutSpec>(layer.spec).rate;
  Doubles factors(batch * elements, 1.0);
  for (int64_t n = 0; n < batch && context.training; ++n) {
    const RandomStream stream(context.seed, RandomPurpose::kDropout, context.layer, context.epoch,
                              context.sample_ids[n]);
    for (int64_t i = 0; i < elements; ++i) {
      const bool kept = ToUniform(stream.Block(i / 4)[i % 4]) >= rate;
      factors[n * elements + i] = kept ? 1 / (1 - double{rate}) : 0;
    }
  }
  return factors;
}

Doubles Times(Doubles a, const Doubles& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
  return a;
}

Doubles Softmax(const Doubles& x, size_t channels) {
  Doubles y(x.size());
  for (size_t at = 0; at < x.size(); at += channels) {
    const double largest = *std::max_element(&x[at], &x[at] + channels);
    double sum = 0;
    for (size_t c = 0; c < channels; ++c) sum += y[at + c] = std::exp(x[at + c] - largest);
    for (size_t c = 0; c < channels; ++c) y[at + c] /= sum;
  }
  return y;
}

template <typename Spec>
bool Is(const Layer& layer) {
  return std::holds_alternative<Spec>(layer.spec);
}

}  // namespace

Doubles Forward(const Layer& layer, int64_t batch, const std::vector<Doubles>& inputs,
                const Context& context) {
  const Doubles& x = inputs[0];
  const auto channels = static_cast<size_t>(layer.input_shape.channels);
  if (Is<Conv2dSpec>(layer)) return Conv{layer, batch, context}.Forward(x);
  if (Is<DenseSpec>(layer)) return FullyConnected{layer, batch, context}.Forward(x);
  if (Is<PoolSpec>(layer)) return Pool{layer, batch}.Forward(x);
  if (Is<LrnSpec>(layer)) return ResponseNormalisation{layer, batch}.Forward(x);
  if (Is<BatchNormSpec>(layer)) return BatchNormalisation{layer, context}.Forward(x);
  if (Is<GroupNormSpec>(layer)) return GroupNormForward(layer, x, context);
  if (Is<DropoutSpec>(layer)) return Times(x, DropoutFactors(layer, batch, context));
  if (Is<SoftmaxSpec>(layer)) return Softmax(x, channels);
  if (Is<FlattenSpec>(layer)) return x;
  if (ElementwiseAt(layer.spec, 0)) {
    Doubles y;
    for (const double value : x) y.push_back(ElementwiseAt(layer.spec, value)->value);
    return y;
  }
  Doubles y(batch * layer.output_shape.elements());
  if (Is<AddSpec>(layer)) {
    for (const Doubles& input : inputs)
      for (size_t i = 0; i < y.size(); ++i) y[i] += input[i];
  } else if (Is<ReflectPadSpec>(layer)) {
    ReflectPadding{layer}.ForElements(batch, [&](size_t o, size_t i) { y[o] = x[i]; });
  } else if (Is<ConcatSpec>(layer)) {
    Joined{layer}.ForElements(y.size(), [&](size_t j, size_t i, size_t o) { y[o] = inputs[j][i]; });
  } else if (Is<GlobalAvgPoolSpec>(layer)) {
    const size_t image = layer.input_shape.elements();
    for (size_t i = 0; i < x.size(); ++i) {
      y[i / image * channels + i % channels] += x[i] * static_cast<double>(channels) / image;
    }
  } else {
    throw std::invalid_argument("no oracle for " + layer.kind);
  }
  return y;
}

Gradients Backward(const Layer& layer, int64_t batch, const std::vector<Doubles>& inputs,
                   const Doubles& dy, const Context& context) {
  const Doubles& x = inputs[0];
  const auto channels = static_cast<size_t>(layer.input_shape.channels);
  if (Is<Conv2dSpec>(layer)) return Conv{layer, batch, context}.Backward(x, dy);
  if (Is<DenseSpec>(layer)) return FullyConnected{layer, batch, context}.Backward(x, dy);
  if (Is<PoolSpec>(layer)) return Pool{layer, batch}.Backward(x, dy);
  if (Is<LrnSpec>(layer)) return ResponseNormalisation{layer, batch}.Backward(x, dy);
  if (Is<BatchNormSpec>(layer)) return BatchNormalisation{layer, context}.Backward(x, dy);
  if (Is<GroupNormSpec>(layer)) return GroupNormBackward(layer, x, dy, context);
  Gradients g;
  if (Is<DropoutSpec>(layer)) {
    g.inputs = {Times(dy, DropoutFactors(layer, batch, context))};
  } else if (ElementwiseAt(layer.spec, 0)) {
    g.inputs = {dy};
    for (size_t i = 0; i < x.size(); ++i) {
      g.inputs[0][i] *= ElementwiseAt(layer.spec, x[i])->slope;
    }
  } else if (Is<FlattenSpec>(layer)) {
    g.inputs = {dy};
  } else if (Is<ReflectPadSpec>(layer)) {
    g.inputs = {Doubles(x.size())};
    ReflectPadding{layer}.ForElements(batch, [&](size_t o, size_t i) { g.inputs[0][i] += dy[o]; });
  } else if (Is<AddSpec>(layer)) {
    g.inputs.assign(inputs.size(), dy);
  } else if (Is<ConcatSpec>(layer)) {
    for (const Doubles& input : inputs) g.inputs.emplace_back(input.size());
    Joined{layer}.ForElements(dy.size(),
                              [&](size_t j, size_t i, size_t o) { g.inputs[j][i] = dy[o]; });
  } else if (Is<GlobalAvgPoolSpec>(layer)) {
    const size_t image = layer.input_shape.elements();
    g.inputs = {x};
    for (size_t i = 0; i < x.size(); ++i) {
      g.inputs[0][i] =
          dy[i / image * channels + i % channels] * static_cast<double>(channels) / image;
    }
  } else if (Is<SoftmaxSpec>(layer)) {
    // dx_i = Σ_j dy_j dy_j/dx_i, straight from the definition.
    const Doubles y = Softmax(x, channels);
    g.inputs = {Doubles(x.size())};
    for (size_t at = 0; at < x.size(); at += channels)
      for (size_t i = 0; i < channels; ++i)
        for (size_t j = 0; j < channels; ++j)
          g.inputs[0][at + i] += dy[at + j] * y[at + j] * ((i == j ? 1 : 0) - y[at + i]);
  } else {
    throw std::invalid_argument("no oracle for " + layer.kind);
  }
  return g;
}

Doubles Activate(Doubles x, Activation activation) {
  for (double& value : x) {
    if (activation != Activation::kNone) value = std::max(0.0, value);
    if (activation == Activation::kRelu6) value = std::min(6.0, value);
  }
  return x;
}

Doubles ActivationGradient(const Doubles& x, Doubles dy, Activation activation) {
  for (size_t i = 0; i < x.size(); ++i) {
    if (activation != Activation::kNone && !(x[i] > 0)) dy[i] = 0;
    if (activation == Activation::kRelu6 && !(x[i] < 6)) dy[i] = 0;
  }
  return dy;
}

}  // namespace muster::reference
