#include "cli/model/onnx_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/base/error.h"
#include "common/model/torch_tensors.h"
#include "proto/onnx.pb.h"

namespace muster {
namespace {

using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;

// An output of a layer. A row is [batch, channels], or, where an operator wants an image of one
// pixel, [batch, channels, 1, 1].
struct OnnxValue {
  std::string name;
  Shape shape;
  bool is_row = false;
};

class NodeBuilder {
 public:
  explicit NodeBuilder(onnx::Network& network) : network_(network) {}

  // Returns the name of its output. Attributes follow.
  std::string Add(const char* type, const Strings& inputs, const std::string& output) {
    node_ = network_.add_node();
    node_->set_op_type(type);
    node_->set_name(output);
    for (const std::string& input : inputs) node_->add_input(input);
    node_->add_output(output);
    return output;
  }
  // False if it has been asked before: several layers may want one value in another form.
  bool IsNew(const std::string& name) { return forms_.insert(name).second; }
  NodeBuilder& Int(const char* name, int64_t value) {
    Attribute(name, onnx::Attribute::INT).set_i(value);
    return *this;
  }
  NodeBuilder& Float(const char* name, float value) {
    Attribute(name, onnx::Attribute::FLOAT).set_f(value);
    return *this;
  }
  NodeBuilder& List(const char* name, const Ints& values) {
    onnx::Attribute& attribute = Attribute(name, onnx::Attribute::INTS);
    for (const int64_t value : values) attribute.add_ints(value);
    return *this;
  }
  template <typename T>
  std::string Constant(const std::string& name, onnx::Tensor::DataType type,
                       const std::vector<T>& values, bool scalar) {
    onnx::Tensor& tensor = *network_.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    if (!scalar) tensor.add_dims(static_cast<int64_t>(values.size()));
    tensor.set_raw_data(values.data(), values.size() * sizeof(T));
    return name;
  }

 private:
  onnx::Attribute& Attribute(const char* name, onnx::Attribute::Type type) {
    onnx::Attribute& attribute = *node_->add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return attribute;
  }

  onnx::Network& network_;
  onnx::Node* node_ = nullptr;
  std::set<std::string> forms_;
};

// One layer. There is an overload for each kind: a new one has to be thought of.
class LayerNodes {
 public:
  LayerNodes(NodeBuilder& nodes, const Layer& layer, std::vector<OnnxValue> inputs, Strings weights,
             bool channels_first)
      : nodes_(nodes),
        layer_(layer),
        inputs_(std::move(inputs)),
        weights_(std::move(weights)),
        channels_first_(channels_first) {}

  OnnxValue operator()(const Conv2dSpec& conv) {
    Strings inputs{Image(inputs_[0])};
    inputs.insert(inputs.end(), weights_.begin(), weights_.end());
    nodes_.Add("Conv", inputs, Out());
    nodes_.Int("group", conv.groups);
    return Window(conv);
  }
  OnnxValue operator()(const PoolSpec& pool) {
    const bool average = pool.kind == PoolSpec::Kind::kAverage;
    nodes_.Add(average ? "AveragePool" : "MaxPool", {Image(inputs_[0])}, Out());
    if (average) nodes_.Int("count_include_pad", 0);
    return Window(pool);
  }
  OnnxValue operator()(const DenseSpec&) {
    Strings inputs{Row(inputs_[0])};
    inputs.insert(inputs.end(), weights_.begin(), weights_.end());
    nodes_.Add("Gemm", inputs, Out());
    nodes_.Int("transB", 1);
    return Made(/*is_row=*/true);
  }
  OnnxValue operator()(const BatchNormSpec& norm) {
    Strings inputs{Image(inputs_[0])};
    inputs.insert(inputs.end(), weights_.begin(), weights_.end());
    nodes_.Add("BatchNormalization", inputs, Out());
    nodes_.Float("epsilon", norm.epsilon);
    return Made(false);
  }
  OnnxValue operator()(const LrnSpec& lrn) {
    const int64_t size = 2 * lrn.depth_radius + 1;
    nodes_.Add("LRN", {Image(inputs_[0])}, Out());
    nodes_.Int("size", size)
        .Float("alpha", lrn.alpha * static_cast<float>(size))  // ONNX divides by the size
        .Float("beta", lrn.beta)
        .Float("bias", lrn.bias);
    return Made(false);
  }
  OnnxValue operator()(const ReluSpec&) { return Alike("Relu"); }
  OnnxValue operator()(const Relu6Spec&) {
    const auto constant = [&](const char* suffix, float value) {
      return nodes_.Constant<float>(Out() + suffix, onnx::Tensor::FLOAT, {value}, true);
    };
    const std::string least = constant(":min", 0), most = constant(":max", 6);
    nodes_.Add("Clip", {inputs_[0].name, least, most}, Out());
    return Made(inputs_[0].is_row);
  }
  OnnxValue operator()(const SoftmaxSpec&) {
    OnnxValue value = Alike("Softmax");
    nodes_.Int("axis", 1);
    return value;
  }
  OnnxValue operator()(const GlobalAvgPoolSpec&) {
    nodes_.Add("GlobalAveragePool", {Image(inputs_[0])}, Out());
    return Made(false);
  }
  OnnxValue operator()(const FlattenSpec&) {
    return {.name = Row(inputs_[0]), .shape = layer_.output_shape, .is_row = true};
  }
  OnnxValue operator()(const DropoutSpec&) { return inputs_[0]; }
  OnnxValue operator()(const AddSpec&) {
    const Strings terms = OfOneKind();
    std::string sum = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      const bool last = i + 1 == terms.size();
      sum = nodes_.Add("Add", {sum, terms[i]}, last ? Out() : Out() + ":" + std::to_string(i));
    }
    return Made(AnyRow());
  }
  OnnxValue operator()(const ConcatSpec&) {
    nodes_.Add("Concat", OfOneKind(), Out());
    nodes_.Int("axis", 1);
    return Made(AnyRow());
  }
  OnnxValue operator()(const SoftmaxCrossEntropySpec&) { return Logits(); }
  OnnxValue operator()(const MeanSquaredErrorSpec&) { return Logits(); }

 private:
  // No layer and no variable has a ':' in its name.
  std::string Out() const { return layer_.name + ":out"; }
  OnnxValue Made(bool is_row) const { return {Out(), layer_.output_shape, is_row}; }
  OnnxValue Alike(const char* type) {
    nodes_.Add(type, {inputs_[0].name}, Out());
    return Made(inputs_[0].is_row);
  }
  template <typename Spec>
  OnnxValue Window(const Spec& spec) {
    nodes_.List("kernel_shape", {spec.kernel_height, spec.kernel_width})
        .List("strides", {spec.stride_height, spec.stride_width})
        .List("pads", {spec.pads.top, spec.pads.left, spec.pads.bottom, spec.pads.right});
    return Made(false);
  }
  OnnxValue Logits() {
    nodes_.Add("Identity", {Row(inputs_[0])}, "logits");
    return {"logits", inputs_[0].shape, true};
  }

  bool AnyRow() const {
    return std::ranges::any_of(inputs_, [](const OnnxValue& input) { return input.is_row; });
  }
  Strings OfOneKind() {
    Strings names;
    for (const OnnxValue& input : inputs_) names.push_back(AnyRow() ? Row(input) : input.name);
    return names;
  }
  // A value as [batch, channels, height, width] …
  std::string Image(const OnnxValue& value) {
    if (!value.is_row) return value.name;
    std::string name = value.name + ":image";
    if (!nodes_.IsNew(name)) return name;
    const std::string shape = nodes_.Constant<int64_t>(name + ":shape", onnx::Tensor::INT64,
                                                       {0, value.shape.channels, 1, 1}, false);
    return nodes_.Add("Reshape", {value.name, shape}, name);
  }
  // … and as [batch, features].
  std::string Row(const OnnxValue& value) {
    if (value.is_row) return value.name;
    std::string image = value.name;
    std::string name = value.name + ":row";
    if (!nodes_.IsNew(name)) return name;
    if (!channels_first_ && value.shape.height * value.shape.width > 1) {
      image = nodes_.Add("Transpose", {image}, name + ":transposed");
      nodes_.List("perm", {0, 2, 3, 1});
    }
    nodes_.Add("Flatten", {image}, name);
    nodes_.Int("axis", 1);
    return name;
  }

  NodeBuilder& nodes_;
  const Layer& layer_;
  const std::vector<OnnxValue> inputs_;
  const Strings weights_;
  const bool channels_first_;
};

void Describe(onnx::Value& value, const char* name, const Ints& sizes) {
  value.set_name(name);
  onnx::Type::TensorType& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx::Tensor::FLOAT);
  type.mutable_shape()->add_dim()->set_dim_param("batch");
  for (const int64_t size : sizes) type.mutable_shape()->add_dim()->set_dim_value(size);
}

}  // namespace

void AddOnnxNodes(const Graph& graph, onnx::Network& network) {
  const TorchTensors torch(graph);
  // By layer, in the order in which PyTorch and ONNX have them.
  std::map<int, Strings> weights;
  for (const TorchTensor& tensor : torch.tensors()) {
    const int layer = graph.variables()[static_cast<size_t>(tensor.variable())].layer;
    weights[layer].push_back(tensor.name());
  }
  NodeBuilder nodes(network);
  const Shape& input = graph.input_shape();
  const OnnxValue image{"images", input, false};
  Describe(*network.add_input(), "images", {input.channels, input.height, input.width});
  std::vector<OnnxValue> outputs;
  for (size_t i = 0; i < graph.layers().size(); ++i) {
    const Layer& layer = graph.layers()[i];
    std::vector<OnnxValue> inputs;
    for (const int from : layer.inputs) {
      inputs.push_back(from == Layer::kData ? image : outputs[static_cast<size_t>(from)]);
    }
    outputs.push_back(
        std::visit(LayerNodes(nodes, layer, std::move(inputs), weights[static_cast<int>(i)],
                              torch.flattens_channels_first()),
                   layer.spec));
  }
  Describe(*network.add_output(), "logits", {graph.classes()});
}

}  // namespace muster
