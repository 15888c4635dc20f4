#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "common/config/build_graph.h"
#include "proto/config.pb.h"
#include "tests/nn/reference.h"

namespace muster::reference {
namespace {

Doubles Part(const Doubles& arena, const Graph& graph, int variable) {
  if (variable < 0) return {};
  const Variable& v = graph.variables()[variable];
  return Doubles(arena.begin() + v.offset, arena.begin() + v.offset + v.count);
}

Context ContextOf(const Graph& graph, int layer, const Doubles& arena, const Context& context) {
  const Layer& l = graph.layers()[layer];
  Context own = context;
  own.layer = layer;
  own.weights = Part(arena, graph, l.scale >= 0 ? l.scale : l.weights);
  own.bias = Part(arena, graph, l.shift >= 0 ? l.shift : l.bias);
  own.running_mean = Part(arena, graph, l.running_mean);
  own.running_variance = Part(arena, graph, l.running_variance);
  return own;
}

void AddTo(Doubles& to, const Doubles& from) {
  if (to.empty()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

config::Model Parse(const std::string& text) {
  config::Model model;
  if (!google::protobuf::TextFormat::ParseFromString(text, &model)) {
    throw std::invalid_argument("not a model: " + text);
  }
  return model;
}

// Calls body(sample, output, t), where t is the loss's target.
template <typename Body>
void ForTargets(const LayerSpec& loss, size_t classes, const std::vector<int32_t>& labels,
                const Body& body) {
  const auto* entropy = std::get_if<SoftmaxCrossEntropySpec>(&loss);
  const double smoothing = entropy ? entropy->label_smoothing : 0;
  const size_t first_class = classes == 1 ? 1 : 0;
  for (size_t n = 0; n < labels.size(); ++n) {
    for (size_t j = 0; j < classes && labels[n] >= 0; ++j) {
      const bool is_label = static_cast<int32_t>(j + first_class) == labels[n];
      body(n, j, (is_label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes));
    }
  }
}

// log Σ exp(x_j) of one row.
double LogSum(const double* x, size_t classes) {
  const double largest = *std::max_element(x, x + classes);
  double sum = 0;
  for (size_t j = 0; j < classes; ++j) sum += std::exp(x[j] - largest);
  return largest + std::log(sum);
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

double Loss(const LayerSpec& loss, const Doubles& logits, const std::vector<int32_t>& labels) {
  const size_t classes = logits.size() / labels.size();
  const bool squared = std::holds_alternative<MeanSquaredErrorSpec>(loss);
  const bool sigmoid = std::holds_alternative<SigmoidCrossEntropySpec>(loss);
  double sum = 0;
  ForTargets(loss, classes, labels, [&](size_t n, size_t j, double t) {
    const double* x = &logits[n * classes];
    const double mean = 1 / static_cast<double>(classes);
    if (squared) {
      sum += (x[j] - t) * (x[j] - t) * mean;
    } else if (sigmoid) {
      sum -= (t * std::log(Sigmoid(x[j])) + (1 - t) * std::log(Sigmoid(-x[j]))) * mean;
    } else {
      sum += t * (LogSum(x, classes) - x[j]);
    }
  });
  return sum;
}

Doubles LossGradient(const LayerSpec& loss, const Doubles& logits,
                     const std::vector<int32_t>& labels) {
  const size_t classes = logits.size() / labels.size();
  const bool squared = std::holds_alternative<MeanSquaredErrorSpec>(loss);
  const bool sigmoid = std::holds_alternative<SigmoidCrossEntropySpec>(loss);
  Doubles gradient(logits.size());
  ForTargets(loss, classes, labels, [&](size_t n, size_t j, double t) {
    const double* x = &logits[n * classes];
    const double mean = 1 / static_cast<double>(classes);
    gradient[n * classes + j] = squared   ? 2 * (x[j] - t) * mean
                                : sigmoid ? (Sigmoid(x[j]) - t) * mean
                                          : std::exp(x[j] - LogSum(x, classes)) - t;
  });
  return gradient;
}

NetworkResult Run(const Graph& graph, const Doubles& arena, const Doubles& images,
                  const std::vector<int32_t>& labels, const Context& context, double scale) {
  const auto& layers = graph.layers();
  const int64_t batch = labels.size();
  std::vector<Doubles> values(layers.size());
  const auto inputs_of = [&](const Layer& layer) {
    std::vector<Doubles> inputs;
    for (const int input : layer.inputs) inputs.push_back(input < 0 ? images : values[input]);
    return inputs;
  };
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    values[i] = Forward(layers[i], batch, inputs_of(layers[i]),
                        ContextOf(graph, static_cast<int>(i), arena, context));
  }
  const Doubles logits = inputs_of(layers.back())[0];
  NetworkResult result{Loss(layers.back().spec, logits, labels), Doubles(arena.size()), logits};
  if (!context.training) return result;

  std::vector<bool> learns(layers.size());  // itself, or a layer before it
  for (size_t i = 0; i < layers.size(); ++i) {
    learns[i] = layers[i].has_variables() && !layers[i].frozen;
    for (const int input : layers[i].inputs) learns[i] = learns[i] || (input >= 0 && learns[input]);
  }
  std::vector<Doubles> gradients(layers.size());
  Doubles of_logits = LossGradient(layers.back().spec, logits, labels);
  for (double& g : of_logits) g *= scale;
  gradients[layers.back().inputs[0]] = of_logits;
  for (size_t i = layers.size() - 1; i-- > 0;) {
    const Layer& layer = layers[i];
    if (!learns[i]) continue;
    const Gradients g = Backward(layer, batch, inputs_of(layer), gradients[i],
                                 ContextOf(graph, static_cast<int>(i), arena, context));
    for (size_t j = 0; j < layer.inputs.size(); ++j) {
      if (layer.inputs[j] >= 0) AddTo(gradients[layer.inputs[j]], g.inputs[j]);
    }
    const auto keep = [&](int variable, const Doubles& from, double factor) {
      if (variable < 0) return;
      const size_t offset = graph.variables()[variable].offset;
      for (size_t k = 0; k < from.size(); ++k) result.gradients[offset + k] = factor * from[k];
    };
    keep(layer.scale >= 0 ? layer.scale : layer.weights, g.weights, 1);
    keep(layer.shift >= 0 ? layer.shift : layer.bias, g.bias, 1);
    keep(layer.running_mean, g.mean, static_cast<double>(batch) * scale);
    keep(layer.running_variance, g.variance, static_cast<double>(batch) * scale);
  }
  return result;
}

Graph MakeGraph(const std::string& model_text, const Shape& input) {
  return BuildGraph(Parse(model_text), input);
}

Layer MakeLayer(const std::string& layer_text, const Shape& input) {
  return MakeLayer(layer_text, std::vector<Shape>{input});
}

// A graph has a single image, so 1x1 convolutions make the inputs from it.
Layer MakeLayer(const std::string& layer_text, const std::vector<Shape>& inputs) {
  std::string text, names;
  for (size_t j = 0; j < inputs.size(); ++j) {
    text +=
        fmt::format("layer {{ name: 'in{}' input: 'data' conv2d {{ filters: {} kernel: 1 }} }}\n",
                    j, inputs[j].channels);
    names += fmt::format(" input: 'in{}'", j);
  }
  text += "layer { name: 'it' " + names + " " + layer_text + " }";
  if (!LossTrouble(Parse(text)).empty()) {
    text += R"(layer { name: 'out' dense { units: 2 } }
               layer { name: 'loss' softmax_cross_entropy {} })";
  }
  const Graph graph = MakeGraph(text, {inputs[0].height, inputs[0].width, 1});
  return graph.layers()[inputs.size()];
}

}  // namespace muster::reference
