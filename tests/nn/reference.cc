#include "tests/nn/reference.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include "common/random.h"

namespace muster::reference {
namespace {

// Calls body(n, output offset, input offset, place in the window) for each pair of output pixel
// and input pixel that a window connects, in row-major order. Offsets are in pixels.
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

  Doubles Forward(const Doubles& x) const {
    Doubles y(batch * layer.output_shape.elements());
    for (size_t i = 0; i < y.size() && spec.use_bias; ++i) y[i] = context.bias[i % out];
    ForWindows(layer, spec, batch, [&](int64_t o, int64_t i, int64_t place) {
      for (int64_t f = 0; f < out; ++f)
        for (int64_t c = 0; c < in; ++c)
          y[o * out + f] += context.weights[(f * area + place) * in + c] * x[i * in + c];
    });
    return y;
  }
  Gradients Backward(const Doubles& x, const Doubles& dy) const {
    Gradients g{Doubles(x.size()), Doubles(out * area * in), Doubles(spec.use_bias ? out : 0)};
    for (size_t i = 0; i < dy.size() && spec.use_bias; ++i) g.bias[i % out] += dy[i];
    ForWindows(layer, spec, batch, [&](int64_t o, int64_t i, int64_t place) {
      for (int64_t f = 0; f < out; ++f)
        for (int64_t c = 0; c < in; ++c) {
          const int64_t w = (f * area + place) * in + c;
          g.weights[w] += dy[o * out + f] * x[i * in + c];
          g.input[i * in + c] += dy[o * out + f] * context.weights[w];
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
    Gradients g{Doubles(x.size()), Doubles(out * in), Doubles(use_bias ? out : 0)};
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t f = 0; f < out; ++f) {
        if (use_bias) g.bias[f] += dy[n * out + f];
        for (int64_t c = 0; c < in; ++c) {
          g.weights[f * in + c] += dy[n * out + f] * x[n * in + c];
          g.input[n * in + c] += dy[n * out + f] * context.weights[f * in + c];
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

  // Where each output's maximum is: the first of equal ones.
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
    Gradients g{Doubles(x.size()), {}, {}};
    if (spec.kind == PoolSpec::Kind::kMax) {
      const auto chosen = Chosen(x);
      for (size_t o = 0; o < outputs; ++o) g.input[chosen[o]] += dy[o];
      return g;
    }
    const Doubles counts = Counts();
    ForWindows(layer, spec, batch, [&](int64_t o, int64_t i, int64_t) {
      for (int64_t c = 0; c < channels; ++c)
        g.input[i * channels + c] += dy[o * channels + c] / counts[o * channels + c];
    });
    return g;
  }
};

struct Normalisation {
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
    Gradients g{Doubles(x.size()), {}, {}};
    const double beta = spec.beta;
    for (int64_t at = 0; at < static_cast<int64_t>(x.size()); at += channels)
      for (int64_t c = 0; c < channels; ++c) {
        const double n = N(x, at, c);
        g.input[at + c] += dy[at + c] * std::pow(n, -beta);
        for (int64_t j = std::max<int64_t>(0, c - spec.depth_radius);
             j <= std::min(channels - 1, c + spec.depth_radius); ++j)
          g.input[at + j] -= dy[at + c] * x[at + c] * beta * std::pow(n, -beta - 1) *
                             spec.alpha * 2 * x[at + j];
      }
    return g;
  }
};

// The factor of each element.
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

Doubles Part(const Doubles& arena, const Graph& graph, int variable) {
  if (variable < 0) return {};
  const Variable& v = graph.variables()[variable];
  return Doubles(arena.begin() + v.offset, arena.begin() + v.offset + v.count);
}

}  // namespace

Doubles Forward(const Layer& layer, int64_t batch, const Doubles& x, const Context& context) {
  if (std::holds_alternative<Conv2dSpec>(layer.spec)) return Conv{layer, batch, context}.Forward(x);
  if (std::holds_alternative<DenseSpec>(layer.spec)) {
    return FullyConnected{layer, batch, context}.Forward(x);
  }
  if (std::holds_alternative<PoolSpec>(layer.spec)) return Pool{layer, batch}.Forward(x);
  if (std::holds_alternative<LrnSpec>(layer.spec)) return Normalisation{layer, batch}.Forward(x);
  if (std::holds_alternative<DropoutSpec>(layer.spec)) {
    return Times(x, DropoutFactors(layer, batch, context));
  }
  Doubles y = x;
  if (std::holds_alternative<ReluSpec>(layer.spec)) {
    for (double& value : y) value = std::max(0.0, value);
  }
  return y;
}

Gradients Backward(const Layer& layer, int64_t batch, const Doubles& x, const Doubles& dy,
                   const Context& context) {
  if (std::holds_alternative<Conv2dSpec>(layer.spec)) {
    return Conv{layer, batch, context}.Backward(x, dy);
  }
  if (std::holds_alternative<DenseSpec>(layer.spec)) {
    return FullyConnected{layer, batch, context}.Backward(x, dy);
  }
  if (std::holds_alternative<PoolSpec>(layer.spec)) return Pool{layer, batch}.Backward(x, dy);
  if (std::holds_alternative<LrnSpec>(layer.spec)) {
    return Normalisation{layer, batch}.Backward(x, dy);
  }
  if (std::holds_alternative<DropoutSpec>(layer.spec)) {
    return {Times(dy, DropoutFactors(layer, batch, context)), {}, {}};
  }
  Doubles dx = dy;
  if (std::holds_alternative<ReluSpec>(layer.spec)) {
    for (size_t i = 0; i < dx.size(); ++i) dx[i] = x[i] > 0 ? dx[i] : 0;
  }
  return {dx, {}, {}};
}

double Loss(const Doubles& logits, const std::vector<int32_t>& labels) {
  const size_t classes = logits.size() / labels.size();
  double loss = 0;
  for (size_t n = 0; n < labels.size(); ++n) {
    const double* x = &logits[n * classes];
    const double largest = *std::max_element(x, x + classes);
    double sum = 0;
    for (size_t j = 0; j < classes; ++j) sum += std::exp(x[j] - largest);
    loss += largest + std::log(sum) - x[labels[n]];
  }
  return loss;
}

Doubles LossGradient(const Doubles& logits, const std::vector<int32_t>& labels) {
  const size_t classes = logits.size() / labels.size();
  Doubles gradient(logits.size());
  for (size_t n = 0; n < labels.size(); ++n) {
    const double* x = &logits[n * classes];
    const double largest = *std::max_element(x, x + classes);
    double sum = 0;
    for (size_t j = 0; j < classes; ++j) sum += std::exp(x[j] - largest);
    for (size_t j = 0; j < classes; ++j)
      gradient[n * classes + j] = std::exp(x[j] - largest) / sum -
                                  (static_cast<int32_t>(j) == labels[n] ? 1 : 0);
  }
  return gradient;
}

NetworkResult Run(const Graph& graph, const Doubles& arena, const Doubles& images,
                  const std::vector<int32_t>& labels, const Context& context, double scale) {
  const auto& layers = graph.layers();
  const int64_t batch = labels.size();
  std::vector<Doubles> values = {images};
  std::vector<Context> contexts;
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    contexts.push_back(context);
    contexts[i].layer = static_cast<int>(i);
    contexts[i].weights = Part(arena, graph, layers[i].weights);
    contexts[i].bias = Part(arena, graph, layers[i].bias);
    values.push_back(Forward(layers[i], batch, values[i], contexts[i]));
  }
  NetworkResult result{Loss(values.back(), labels), Doubles(arena.size())};
  Doubles gradient = LossGradient(values.back(), labels);
  for (double& g : gradient) g *= scale;
  for (size_t i = layers.size() - 1; i-- > 0;) {
    Gradients g = Backward(layers[i], batch, values[i], gradient, contexts[i]);
    const auto keep = [&](int variable, const Doubles& from) {
      if (variable < 0) return;
      std::copy(from.begin(), from.end(),
                result.gradients.begin() + graph.variables()[variable].offset);
    };
    keep(layers[i].weights, g.weights);
    keep(layers[i].bias, g.bias);
    gradient = std::move(g.input);
  }
  return result;
}

Graph MakeGraph(const std::string& model_text, const Shape& input) {
  config::Model model;
  if (!google::protobuf::TextFormat::ParseFromString(model_text, &model)) {
    throw std::invalid_argument("not a model: " + model_text);
  }
  return Graph::Build(model, input);
}

Layer MakeLayer(const std::string& layer_text, const Shape& input) {
  const Graph graph = MakeGraph("layer { name: 'it' " + layer_text + R"(}
                                 layer { name: 'out' dense { units: 2 } }
                                 layer { name: 'loss' softmax_cross_entropy {} })",
                                input);
  return graph.layers()[0];
}

}  // namespace muster::reference
