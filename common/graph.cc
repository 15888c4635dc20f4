#include "common/graph.h"

#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "common/error.h"

namespace muster {
namespace {

constexpr size_t kAlignFloats = 16;  // 64 bytes

// Builds one layer after the other; every error names the layer.
class GraphBuilder {
 public:
  explicit GraphBuilder(const Shape& input) : data_shape_(input) {}

  void Add(const config::Layer& layer);
  void Finish() const;

  std::vector<Layer> layers;
  std::vector<Variable> variables;
  size_t arena_floats = 0;

 private:
  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ExitCode::kUsage, "layer \"{}\" ({}): {}", current_->name, current_->kind,
                fmt::format(format, std::forward<Args>(args)...));
  }

  int FindInput(const config::Layer& layer) const;
  LayerSpec Convert(const config::Conv2d& conv);
  LayerSpec Convert(const config::Dense& dense);
  LayerSpec Convert(const config::Pool& pool, PoolSpec::Kind kind);
  LayerSpec Convert(const config::Lrn& lrn);
  LayerSpec ConvertLoss();

  struct Window {
    int64_t kernel_height, kernel_width, stride_height, stride_width, out_height, out_width;
    Pads pads;
  };
  template <typename M>
  Window PlaceWindow(const M& message, int64_t default_stride_height,
                     int64_t default_stride_width) const;
  std::pair<int64_t, int64_t> Pair(const google::protobuf::RepeatedField<uint32_t>& values,
                                   const char* key) const;
  int AddVariable(const char* suffix, std::vector<int64_t> shape, int64_t fan_in, int64_t fan_out,
                  const config::Variable& settings, config::Initializer fallback);

  const Shape data_shape_;
  Layer* current_ = nullptr;
  std::map<std::string, int> by_name_;
  std::set<int> used_;
};

bool IsValidName(const std::string& name) {
  const auto inner = [](unsigned char c) { return std::isalnum(c) || std::strchr("_-./", c); };
  return !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), inner);
}

const char* KindName(config::Layer::KindCase kind) {
  switch (kind) {
    case config::Layer::kConv2D:
      return "conv2d";
    case config::Layer::kDense:
      return "dense";
    case config::Layer::kRelu:
      return "relu";
    case config::Layer::kMaxPool:
      return "max_pool";
    case config::Layer::kAvgPool:
      return "avg_pool";
    case config::Layer::kLrn:
      return "lrn";
    case config::Layer::kFlatten:
      return "flatten";
    case config::Layer::kDropout:
      return "dropout";
    case config::Layer::kSoftmaxCrossEntropy:
      return "softmax_cross_entropy";
    default:
      return "no kind";
  }
}

config::Initializer DefaultWeights() {
  config::Initializer initializer;
  initializer.set_type(config::Initializer::HE);
  return initializer;
}

config::Initializer DefaultBias() {
  config::Initializer initializer;
  initializer.set_type(config::Initializer::CONSTANT);
  return initializer;
}

void GraphBuilder::Add(const config::Layer& layer) {
  Layer next;
  next.name = layer.name();
  next.kind = KindName(layer.kind_case());
  current_ = &next;
  if (!IsValidName(layer.name())) {
    Fail("the name must be a letter, then letters, digits, '_', '-', '.' or '/'");
  }
  if (by_name_.count(layer.name())) Fail("there is another layer of this name");
  if (!layers.empty() && std::holds_alternative<SoftmaxCrossEntropySpec>(layers.back().spec)) {
    Fail("comes after the loss layer \"{}\", which must be the last", layers.back().name);
  }
  next.input = FindInput(layer);
  if (!used_.insert(next.input).second) {
    Fail("its input \"{}\" is already the input of another layer; the layers must form a chain",
         next.input < 0 ? "data" : layers[next.input].name);
  }
  next.input_shape = next.input < 0 ? data_shape_ : layers[next.input].output_shape;
  next.output_shape = next.input_shape;
  switch (layer.kind_case()) {
    case config::Layer::kConv2D:
      next.spec = Convert(layer.conv2d());
      break;
    case config::Layer::kDense:
      next.spec = Convert(layer.dense());
      break;
    case config::Layer::kRelu:
      next.spec = ReluSpec{};
      break;
    case config::Layer::kMaxPool:
      next.spec = Convert(layer.max_pool(), PoolSpec::Kind::kMax);
      break;
    case config::Layer::kAvgPool:
      next.spec = Convert(layer.avg_pool(), PoolSpec::Kind::kAverage);
      break;
    case config::Layer::kLrn:
      next.spec = Convert(layer.lrn());
      break;
    case config::Layer::kFlatten:
      next.spec = FlattenSpec{};
      next.output_shape = {1, 1, next.input_shape.elements()};
      break;
    case config::Layer::kDropout:
      next.spec = DropoutSpec{layer.dropout().rate()};
      break;
    case config::Layer::kSoftmaxCrossEntropy:
      next.spec = ConvertLoss();
      break;
    case config::Layer::KIND_NOT_SET:
    default:
      Fail(
          "expected one of conv2d, dense, relu, max_pool, avg_pool, lrn, flatten, dropout, "
          "softmax_cross_entropy");
  }
  by_name_[next.name] = static_cast<int>(layers.size());
  layers.push_back(next);
  current_ = nullptr;
}

void GraphBuilder::Finish() const {
  if (layers.empty()) throw Error(ExitCode::kUsage, "model: expected at least one layer");
  if (!std::holds_alternative<SoftmaxCrossEntropySpec>(layers.back().spec)) {
    throw Error(ExitCode::kUsage,
                "layer \"{}\" ({}) is the last one: expected the loss, softmax_cross_entropy",
                layers.back().name, layers.back().kind);
  }
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    if (!used_.count(static_cast<int>(i))) {
      throw Error(ExitCode::kUsage, "layer \"{}\" ({}): no layer reads its output", layers[i].name,
                  layers[i].kind);
    }
  }
  if (variables.empty()) throw Error(ExitCode::kUsage, "model: no layer has anything to train");
}

int GraphBuilder::FindInput(const config::Layer& layer) const {
  if (layer.input_size() == 0) return static_cast<int>(layers.size()) - 1;
  const auto found = by_name_.find(layer.input(0));
  if (found != by_name_.end()) return found->second;
  Fail("its input \"{}\" is not the name of an earlier layer", layer.input(0));
}

std::pair<int64_t, int64_t> GraphBuilder::Pair(
    const google::protobuf::RepeatedField<uint32_t>& values, const char* key) const {
  if (values.empty() || values.size() > 2) {
    Fail("{}: expected one number, or height and width; got {} numbers", key, values.size());
  }
  return {values[0], values[values.size() - 1]};
}

template <typename M>
GraphBuilder::Window GraphBuilder::PlaceWindow(const M& message, int64_t default_stride_height,
                                               int64_t default_stride_width) const {
  Window window;
  std::tie(window.kernel_height, window.kernel_width) = Pair(message.kernel(), "kernel");
  window.stride_height = default_stride_height;
  window.stride_width = default_stride_width;
  if (message.stride_size() > 0) {
    std::tie(window.stride_height, window.stride_width) = Pair(message.stride(), "stride");
  }
  if (message.has_pad() && message.padding() != config::EXPLICIT) {
    Fail("pad is given, but padding is {}: write padding: EXPLICIT",
         config::Padding_Name(message.padding()));
  }
  const auto place = [&](const char* axis, int64_t in, int64_t kernel, int64_t stride,
                         int64_t& before, int64_t& after) -> int64_t {
    switch (message.padding()) {
      case config::VALID:
        before = after = 0;
        break;
      case config::EXPLICIT:
        before = after = message.pad();
        break;
      case config::SAME: {
        const int64_t out = (in + stride - 1) / stride;
        const int64_t total = std::max<int64_t>(0, (out - 1) * stride + kernel - in);
        before = total / 2;
        after = total - before;
        break;
      }
    }
    if (before >= kernel || after >= kernel) {
      Fail(
          "{}: padding of {} is not smaller than the kernel of {}, so that some windows would "
          "hold padding only",
          axis, std::max(before, after), kernel);
    }
    if (in + before + after < kernel) {
      Fail("{}: the kernel of {} does not fit into the padded input of {} (input {})", axis, kernel,
           in + before + after, current_->input_shape.ToString());
    }
    return (in + before + after - kernel) / stride + 1;
  };
  const Shape& in = current_->input_shape;
  window.out_height = place("height", in.height, window.kernel_height, window.stride_height,
                            window.pads.top, window.pads.bottom);
  window.out_width = place("width", in.width, window.kernel_width, window.stride_width,
                           window.pads.left, window.pads.right);
  return window;
}

int GraphBuilder::AddVariable(const char* suffix, std::vector<int64_t> shape, int64_t fan_in,
                              int64_t fan_out, const config::Variable& settings,
                              config::Initializer fallback) {
  Variable variable;
  variable.name = current_->name + "/" + suffix;
  variable.layer = static_cast<int>(layers.size());
  variable.count = 1;
  for (const int64_t n : shape) {
    variable.count *= static_cast<size_t>(n);
    if (variable.count > (size_t{1} << 40)) Fail("{} would hold more than 2^40 numbers", suffix);
  }
  variable.shape = std::move(shape);
  variable.offset = arena_floats;
  variable.fan_in = fan_in;
  variable.fan_out = fan_out;
  variable.initializer = settings.has_initializer() ? settings.initializer() : fallback;
  if (settings.has_weight_decay()) variable.weight_decay = settings.weight_decay();
  variable.learning_rate_multiplier = settings.learning_rate_multiplier();
  arena_floats += (variable.count + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  variables.push_back(std::move(variable));
  return static_cast<int>(variables.size()) - 1;
}

LayerSpec GraphBuilder::Convert(const config::Conv2d& conv) {
  const Window window = PlaceWindow(conv, 1, 1);
  const int64_t in = current_->input_shape.channels, out = conv.filters();
  const int64_t area = window.kernel_height * window.kernel_width;
  current_->output_shape = {window.out_height, window.out_width, out};
  current_->weights = AddVariable("weights", {out, window.kernel_height, window.kernel_width, in},
                                  area * in, area * out, conv.weights(), DefaultWeights());
  if (conv.use_bias()) {
    current_->bias = AddVariable("bias", {out}, area * in, area * out, conv.bias(), DefaultBias());
  } else if (conv.has_bias()) {
    Fail("bias is described, but use_bias is false");
  }
  current_->forward_flops =
      2.0 * static_cast<double>(current_->output_shape.elements()) * static_cast<double>(area * in);
  return Conv2dSpec{out,
                    window.kernel_height,
                    window.kernel_width,
                    window.stride_height,
                    window.stride_width,
                    window.pads,
                    conv.use_bias()};
}

LayerSpec GraphBuilder::Convert(const config::Dense& dense) {
  const int64_t in = current_->input_shape.elements(), out = dense.units();
  current_->output_shape = {1, 1, out};
  current_->weights = AddVariable("weights", {out, in}, in, out, dense.weights(), DefaultWeights());
  if (dense.use_bias()) {
    current_->bias = AddVariable("bias", {out}, in, out, dense.bias(), DefaultBias());
  } else if (dense.has_bias()) {
    Fail("bias is described, but use_bias is false");
  }
  current_->forward_flops = 2.0 * static_cast<double>(in) * static_cast<double>(out);
  return DenseSpec{out, dense.use_bias()};
}

LayerSpec GraphBuilder::Convert(const config::Pool& pool, PoolSpec::Kind kind) {
  const auto [kernel_height, kernel_width] = Pair(pool.kernel(), "kernel");
  const Window window = PlaceWindow(pool, kernel_height, kernel_width);
  current_->output_shape = {window.out_height, window.out_width, current_->input_shape.channels};
  current_->forward_flops = static_cast<double>(current_->output_shape.elements()) *
                            static_cast<double>(kernel_height * kernel_width);
  return PoolSpec{kind,
                  window.kernel_height,
                  window.kernel_width,
                  window.stride_height,
                  window.stride_width,
                  window.pads};
}

LayerSpec GraphBuilder::Convert(const config::Lrn& lrn) {
  const double window = 2.0 * lrn.depth_radius() + 1;
  current_->forward_flops = static_cast<double>(current_->input_shape.elements()) * (window + 4);
  return LrnSpec{lrn.depth_radius(), lrn.bias(), lrn.alpha(), lrn.beta()};
}

LayerSpec GraphBuilder::ConvertLoss() {
  const Shape& in = current_->input_shape;
  if (in.height != 1 || in.width != 1) {
    Fail("expected one row of logits, got {}: put a dense or flatten layer before it",
         in.ToString());
  }
  if (in.channels < 2) Fail("expected at least 2 classes, got {}", in.channels);
  current_->forward_flops = 4.0 * static_cast<double>(in.channels);
  return SoftmaxCrossEntropySpec{};
}

// How each layer's numbers enter the description that workers and server compare.
struct SpecPrinter {
  std::string operator()(const Conv2dSpec& s) const {
    return fmt::format("filters {} {}", s.filters, Window(s));
  }
  std::string operator()(const DenseSpec& s) const { return fmt::format("units {}", s.units); }
  std::string operator()(const PoolSpec& s) const { return Window(s); }
  std::string operator()(const LrnSpec& s) const {
    return fmt::format("depth_radius {} bias {} alpha {} beta {}", s.depth_radius, s.bias, s.alpha,
                       s.beta);
  }
  std::string operator()(const DropoutSpec& s) const { return fmt::format("rate {}", s.rate); }
  template <typename T>
  std::string operator()(const T&) const {
    return "";
  }

  template <typename S>
  static std::string Window(const S& s) {
    return fmt::format("kernel {}x{} stride {}x{} pads {},{},{},{}", s.kernel_height,
                       s.kernel_width, s.stride_height, s.stride_width, s.pads.top, s.pads.bottom,
                       s.pads.left, s.pads.right);
  }
};

}  // namespace

std::string Variable::ShapeString() const { return fmt::format("[{}]", fmt::join(shape, ",")); }

Graph Graph::Build(const config::Model& model, const Shape& input) {
  GraphBuilder builder(input);
  for (const config::Layer& layer : model.layer()) builder.Add(layer);
  builder.Finish();
  Graph graph;
  graph.input_shape_ = input;
  graph.layers_ = std::move(builder.layers);
  graph.variables_ = std::move(builder.variables);
  graph.arena_floats_ = builder.arena_floats;
  return graph;
}

int64_t Graph::parameter_count() const {
  size_t count = 0;
  for (const Variable& variable : variables_) count += variable.count;
  return static_cast<int64_t>(count);
}

int64_t Graph::classes() const { return layers_.back().input_shape.channels; }

double Graph::forward_flops() const {
  double flops = 0;
  for (const Layer& layer : layers_) flops += layer.forward_flops;
  return flops;
}

std::vector<std::string> Graph::Describe() const {
  std::vector<std::string> lines{"input " + input_shape_.ToString()};
  for (const Layer& layer : layers_) {
    std::string line =
        fmt::format("{} {} reads {} {} output {}", layer.name, layer.kind,
                    layer.input < 0 ? "data" : layers_[layer.input].name,
                    std::visit(SpecPrinter{}, layer.spec), layer.output_shape.ToString());
    for (const int index : {layer.weights, layer.bias}) {
      if (index >= 0) {
        line += fmt::format(" {} {}", variables_[index].name, variables_[index].ShapeString());
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

uint64_t Graph::Hash() const {
  const std::string text = fmt::format("{}", fmt::join(Describe(), "\n"));
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace muster
