#include "common/config/graph_builder.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/nearest_name.h"

namespace muster {
namespace {

bool IsValidName(const std::string& name) {
  const auto inner = [](unsigned char c) { return std::isalnum(c) || std::strchr("_-./", c); };
  return !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), inner);
}

// The kind's name in the config: conv2d, dense, ...
std::string KindName(const config::Layer& layer) {
  const auto* oneof = config::Layer::descriptor()->FindOneofByName("kind");
  const auto* field = config::Layer::GetReflection()->GetOneofFieldDescriptor(layer, oneof);
  return field == nullptr ? "no kind" : field->name();
}

std::string AllKindNames() {
  const auto* oneof = config::Layer::descriptor()->FindOneofByName("kind");
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(oneof->field_count()));
  for (int i = 0; i < oneof->field_count(); ++i) names.push_back(oneof->field(i)->name());
  return Join(names, ", ");
}

}  // namespace

void GraphBuilder::Add(const config::Layer& layer) {
  Layer next;
  next.name = layer.name();
  next.kind = KindName(layer);
  current_ = &next;
  if (!IsValidName(layer.name())) {
    Fail("the name must be a letter, then letters, digits, '_', '-', '.' or '/'");
  }
  if (layer.name() == "data") Fail("the name \"data\" is reserved for the input");
  if (by_name_.count(layer.name())) Fail("another layer has the same name");
  if (!layers.empty() && layers.back().traits().is_loss) {
    Fail("comes after the loss layer \"{}\", which must be the last", layers.back().name);
  }
  FindInputs(layer);
  next.input_shape = next.output_shape = OutputOf(next.inputs[0]);
  next.spec = Convert(layer);
  by_name_[next.name] = static_cast<int>(layers.size());
  layers.push_back(std::move(next));
  current_ = nullptr;
}

LayerSpec GraphBuilder::Convert(const config::Layer& layer) {
  // By default, count a few operations per element. Layers with more FLOPs set their own count.
  current_->forward_flops = 0;
  const auto per_element = [&](double flops) {
    current_->forward_flops = flops * static_cast<double>(current_->input_shape.elements());
  };
  switch (layer.kind_case()) {
    case config::Layer::kConv2D:
      return Convert(layer.conv2d());
    case config::Layer::kDense:
      return Convert(layer.dense());
    case config::Layer::kRelu:
      return ReluSpec{};
    case config::Layer::kRelu6:
      return Relu6Spec{};
    case config::Layer::kGelu:
      return GeluSpec{.tanh = layer.gelu().approximate() == config::Gelu::TANH};
    case config::Layer::kSilu:
      return SiluSpec{};
    case config::Layer::kSigmoid:
      return SigmoidSpec{};
    case config::Layer::kTanh:
      return TanhSpec{};
    case config::Layer::kLeakyRelu:
      return LeakyReluSpec{.slope = layer.leaky_relu().slope()};
    case config::Layer::kMaxPool:
      return Convert(layer.max_pool(), PoolSpec::Kind::kMax);
    case config::Layer::kAvgPool:
      return Convert(layer.avg_pool(), PoolSpec::Kind::kAverage);
    case config::Layer::kGlobalAvgPool:
      per_element(1);
      current_->output_shape = {1, 1, current_->input_shape.channels};
      return GlobalAvgPoolSpec{};
    case config::Layer::kReflectPad:
      return Convert(layer.reflect_pad());
    case config::Layer::kLrn:
      return Convert(layer.lrn());
    case config::Layer::kBatchNorm:
      return Convert(layer.batch_norm());
    case config::Layer::kGroupNorm:
      return Convert(layer.group_norm());
    case config::Layer::kLayerNorm:
      if (current_->input_shape.channels == 1) {
        Fail("the only channel of a pixel would always become the shift: expected more channels");
      }
      AddScaleAndShift(layer.layer_norm());
      return GroupNormSpec{1, layer.layer_norm().epsilon(), /*per_pixel=*/true};
    case config::Layer::kFlatten:
      current_->output_shape = {1, 1, current_->input_shape.elements()};
      return FlattenSpec{};
    case config::Layer::kDropout:
      return DropoutSpec{layer.dropout().rate()};
    case config::Layer::kAdd:
      return ConvertAdd();
    case config::Layer::kConcat:
      return ConvertConcat();
    case config::Layer::kSoftmax:
      per_element(4);
      return SoftmaxSpec{};
    case config::Layer::kSoftmaxCrossEntropy:
      PrepareLoss(4, 2);
      RefuseProbabilities("softmax");
      return SoftmaxCrossEntropySpec{layer.softmax_cross_entropy().label_smoothing()};
    case config::Layer::kMeanSquaredError:
      PrepareLoss(3, 1);
      return MeanSquaredErrorSpec{};
    case config::Layer::kSigmoidCrossEntropy:
      PrepareLoss(4, 1);
      RefuseProbabilities("sigmoid");
      return SigmoidCrossEntropySpec{};
    case config::Layer::KIND_NOT_SET:
      break;
  }
  Fail("expected one of {}", AllKindNames());
}

void GraphBuilder::Finish() const {
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    if (!used_.count(static_cast<int>(i))) {
      throw Error(ExitCode::kUsage,
                  "layer \"{}\" ({}): no layer reads its output; remove it, or name it as an input "
                  "of a later layer",
                  layers[i].name, layers[i].kind);
    }
  }
  if (variables.empty()) throw Error(ExitCode::kUsage, "model: no layer has anything to train");
}

void GraphBuilder::Freeze(const google::protobuf::RepeatedPtrField<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const bool prefix = pattern.ends_with('*');
    const std::string_view start = std::string_view(pattern).substr(0, pattern.size() - prefix);
    bool found = false;
    std::vector<std::string> names;
    for (Layer& layer : layers) {
      if (!layer.has_variables()) continue;
      names.push_back(layer.name);
      if (prefix ? !layer.name.starts_with(start) : layer.name != start) continue;
      layer.frozen = found = true;
    }
    if (found) continue;
    throw Error(ExitCode::kUsage,
                "model.freeze: \"{}\": no layer with variables has this name{}; {}", pattern,
                prefix ? "'s beginning" : "", SuggestName(std::string(start), names));
  }
  for (Variable& variable : variables) {
    if (!layers[static_cast<size_t>(variable.layer)].frozen) continue;
    variable.learning_rate_multiplier = 0;
    variable.statistic_momentum = 0;
  }
  if (std::ranges::all_of(layers, [](const Layer& l) { return l.frozen || !l.has_variables(); })) {
    throw Error(ExitCode::kUsage,
                "model.freeze: expected at least one layer that learns, got all of them frozen; "
                "leave out the last one, \"{}\"",
                layers[static_cast<size_t>(variables.back().layer)].name);
  }
}

void GraphBuilder::FindInputs(const config::Layer& layer) {
  std::vector<int>& inputs = current_->inputs;
  for (const std::string& name : layer.input()) {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) {
      inputs.push_back(found->second);
    } else if (name == "data") {
      inputs.push_back(Layer::kData);
    } else {
      Fail("its input \"{}\" is neither an earlier layer nor \"data\"", name);
    }
  }
  if (inputs.empty())
    inputs.push_back(static_cast<int>(layers.size()) - 1);  // for the first layer: the data
  const bool takes_several = layer.has_add() || layer.has_concat();
  if (takes_several && inputs.size() < 2) {
    Fail("expected at least 2 inputs, got {}: write input: [\"...\", \"...\"]", inputs.size());
  }
  if (!takes_several && inputs.size() > 1) {
    Fail("expected 1 input, got {}: only add and concat read several", inputs.size());
  }
  used_.insert(inputs.begin(), inputs.end());
}

const std::string& GraphBuilder::NameOf(int layer) const {
  static const std::string kDataName = "data";
  return layer == Layer::kData ? kDataName : layers[layer].name;
}

const Shape& GraphBuilder::OutputOf(int layer) const {
  return layer == Layer::kData ? data_shape_ : layers[layer].output_shape;
}

std::string LossTrouble(const config::Model& model) {
  if (model.layer_size() == 0)
    return "model: expected at least one layer; the model of a run with worker.program is only in "
           "that program";
  const config::Layer& last = model.layer(model.layer_size() - 1);
  if (last.has_softmax_cross_entropy() || last.has_mean_squared_error() ||
      last.has_sigmoid_cross_entropy()) {
    return "";
  }
  return fmt::format(
      "layer \"{}\" ({}) is the last one: expected the loss, softmax_cross_entropy, "
      "sigmoid_cross_entropy or mean_squared_error",
      last.name(), KindName(last));
}

Graph BuildGraph(const config::Model& model, const Shape& input) {
  GraphBuilder builder(input);
  for (const config::Layer& layer : model.layer()) builder.Add(layer);
  const std::string trouble = LossTrouble(model);
  if (!trouble.empty()) throw Error(ExitCode::kUsage, trouble);
  builder.Finish();
  builder.Freeze(model.freeze());
  return {input, std::move(builder.layers), std::move(builder.variables)};
}

}  // namespace muster
