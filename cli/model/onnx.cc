#include "cli/model/onnx.h"

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/model/load_weights.h"
#include "common/model/torch_tensors.h"
#include "proto/onnx.pb.h"

namespace muster {
namespace {

constexpr int kOpset = 13;         // the version of the operators
constexpr int kFormatVersion = 7;  // the version of the file format

constexpr uint64_t kMostMessageBytes = INT_MAX;  // the limit of protobuf

using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;

// The output of a layer. A row is [batch, channels] or, for operators that need an image,
// [batch, channels, 1, 1].
struct OnnxValue {
  std::string name;
  Shape shape;
  bool is_row = false;
};

class NodeBuilder {
 public:
  explicit NodeBuilder(onnx::Network& network) : network_(network) {}

  // Adds a node and returns the name of its output. Attribute calls that follow apply to this node.
  std::string Add(const char* type, const Strings& inputs, const std::string& output) {
    node_ = network_.add_node();
    node_->set_op_type(type);
    node_->set_name(output);
    for (const std::string& input : inputs) node_->add_input(input);
    node_->add_output(output);
    return output;
  }
  // Returns false if it was called with this name before: several layers may need the same
  // converted value.
  bool IsNew(const std::string& name) { return forms_.insert(name).second; }
  NodeBuilder& Int(const char* name, int64_t value) {
    Attribute(name, onnx::Attribute::INT).set_i(value);
    return *this;
  }
  NodeBuilder& Float(const char* name, float value) {
    Attribute(name, onnx::Attribute::FLOAT).set_f(value);
    return *this;
  }
  NodeBuilder& Text(const char* name, const char* value) {
    Attribute(name, onnx::Attribute::STRING).set_s(value);
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

// Adds the nodes of one layer. There is an overload for each kind of layer, so a new kind does not
// compile without one.
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
  OnnxValue operator()(const ReflectPadSpec& pad) {
    const Ints sizes = {0, 0, pad.rows, pad.columns};
    Ints both = sizes;  // before and after
    both.insert(both.end(), sizes.begin(), sizes.end());
    const std::string pads = nodes_.Constant(Out() + ":pads", onnx::Tensor::INT64, both, false);
    nodes_.Add("Pad", {Image(inputs_[0]), pads}, Out());
    nodes_.Text("mode", "reflect");
    return Made(false);
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
  // The operator LayerNormalization needs opset 17, and GroupNormalization 21.
  OnnxValue operator()(const GroupNormSpec& norm) {
    const std::string image = Image(inputs_[0]);
    std::string h;
    if (norm.per_pixel) {
      h = Standardized(image, 1, norm.epsilon);
    } else {
      const std::string groups = Reshaped(image, {0, norm.groups, -1}, "groups");
      const Shape& shape = inputs_[0].shape;
      h = Reshaped(Standardized(groups, 2, norm.epsilon),
                   {0, shape.channels, shape.height, shape.width}, "standardized");
    }
    // The shape has no batch axis, so that the numbers apply to every sample and pixel.
    const Ints channels = {-1, 1, 1};
    const std::string scaled = Step("Mul", {h, Reshaped(weights_[0], channels, "scale")}, "scaled");
    nodes_.Add("Add", {scaled, Reshaped(weights_[1], channels, "shift")}, Out());
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
  template <ElementwiseSpec Spec>
  requires(Spec::kOnnxOperator != nullptr) OnnxValue operator()(const Spec&) {
    return Alike(Spec::kOnnxOperator);
  }
  OnnxValue operator()(const Relu6Spec&) {
    const std::string least = Scalar("min", 0), most = Scalar("max", 6);
    nodes_.Add(Relu6Spec::kOnnxOperator, {inputs_[0].name, least, most}, Out());
    return Made(inputs_[0].is_row);
  }
  OnnxValue operator()(const LeakyReluSpec& leaky) {
    OnnxValue value = Alike(LeakyReluSpec::kOnnxOperator);
    nodes_.Float("alpha", leaky.slope);
    return value;
  }
  OnnxValue operator()(const SiluSpec&) {
    return TimesInput(Step("Sigmoid", {inputs_[0].name}, "sigmoid"));
  }
  // The operator Gelu needs opset 20.
  OnnxValue operator()(const GeluSpec& gelu) {
    const std::string& x = inputs_[0].name;
    const std::string half = Scalar("half", 0.5f), one = Scalar("one", 1);
    std::string curve;  // from -1 to 1
    if (gelu.tanh) {
      const std::string square = Step("Mul", {x, x}, "square");
      const std::string share = Step("Mul", {square, Scalar("cubic", 0.044715f)}, "share");
      const std::string factor = Step("Add", {share, one}, "factor");
      const std::string sum = Step("Mul", {x, factor}, "sum");
      curve = Step("Tanh", {Step("Mul", {sum, Scalar("root", 0.79788456f)}, "scaled")}, "tanh");
    } else {
      curve = Step("Erf", {Step("Mul", {x, Scalar("root", 0.70710678f)}, "scaled")}, "erf");
    }
    const std::string above_zero = Step("Add", {curve, one}, "above_zero");
    return TimesInput(Step("Mul", {above_zero, half}, "below"));
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
  OnnxValue operator()(const SigmoidCrossEntropySpec&) { return Logits(); }

 private:
  // Names of layers and variables have no ':', so this name is unique.
  std::string Out() const { return layer_.name + ":out"; }
  OnnxValue Made(bool is_row) const { return {Out(), layer_.output_shape, is_row}; }
  std::string Scalar(const char* suffix, float value) {
    return nodes_.Constant<float>(layer_.name + ":" + suffix, onnx::Tensor::FLOAT, {value}, true);
  }
  // Adds a node whose output only this layer reads.
  std::string Step(const char* type, const Strings& inputs, const char* suffix) {
    return nodes_.Add(type, inputs, layer_.name + ":" + suffix);
  }
  std::string Reshaped(const std::string& value, const Ints& shape, const std::string& suffix) {
    const std::string sizes =
        nodes_.Constant(layer_.name + ":" + suffix + ":shape", onnx::Tensor::INT64, shape, false);
    return Step("Reshape", {value, sizes}, suffix.c_str());
  }
  // (x - mean) / √(variance + epsilon) along an axis.
  std::string Standardized(const std::string& x, int64_t axis, float epsilon) {
    const std::string mean = Step("ReduceMean", {x}, "mean");
    nodes_.List("axes", {axis});
    const std::string distance = Step("Sub", {x, mean}, "distance");
    const std::string square = Step("Mul", {distance, distance}, "square");
    const std::string variance = Step("ReduceMean", {square}, "variance");
    nodes_.List("axes", {axis});
    const std::string sum = Step("Add", {variance, Scalar("epsilon", epsilon)}, "sum");
    return Step("Div", {distance, Step("Sqrt", {sum}, "deviation")}, "h");
  }
  OnnxValue TimesInput(const std::string& factor) {
    nodes_.Add("Mul", {inputs_[0].name, factor}, Out());
    return Made(inputs_[0].is_row);
  }
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
  // The value as [batch, channels, height, width].
  std::string Image(const OnnxValue& value) {
    if (!value.is_row) return value.name;
    std::string name = value.name + ":image";
    if (!nodes_.IsNew(name)) return name;
    const std::string shape = nodes_.Constant<int64_t>(name + ":shape", onnx::Tensor::INT64,
                                                       {0, value.shape.channels, 1, 1}, false);
    return nodes_.Add("Reshape", {value.name, shape}, name);
  }
  // The value as [batch, features].
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

// Adds the nodes, the input "images" and the output "logits" [batch, classes]. Weights are named as
// in torch_tensors.h. Dropout is omitted; loss layers become the logits.
void AddNodes(const Graph& graph, const TorchTensors& torch, onnx::Network& network) {
  // The weights of each layer, in the order of PyTorch and ONNX.
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
  Describe(*network.add_output(), "logits", {graph.outputs()});
}

void AddWeights(const SafetensorsReader& model, const TorchTensors& torch, onnx::Network& network) {
  std::vector<float> values;
  for (const TorchTensor& tensor : torch.tensors()) {
    values.resize(tensor.count());
    model.ReadFloats(*model.header().Find(tensor.name()), values);
    onnx::Tensor& initializer = *network.add_initializer();
    initializer.set_name(tensor.name());
    initializer.set_data_type(onnx::Tensor::FLOAT);
    for (const int64_t size : tensor.shape()) initializer.add_dims(size);
    initializer.set_raw_data(values.data(), values.size() * sizeof(float));
  }
}

}  // namespace

void WriteOnnx(const SafetensorsReader& model, const Graph& graph, const std::string& path) {
  (void)MatchWeights(model, graph, {});
  const auto too_large = [&] {
    throw Error(ExitCode::kFailure,
                "{}: an ONNX file holds at most 2 GiB, but the weights have {} bytes; export them "
                "as safetensors",
                path, 4 * graph.layout().parameter_count());
  };
  if (4 * static_cast<uint64_t>(graph.layout().parameter_count()) > kMostMessageBytes) too_large();
  onnx::Model onnx;
  onnx.set_ir_version(kFormatVersion);
  onnx.set_producer_name("muster");
  onnx.add_opset_import()->set_version(kOpset);
  for (const auto& [key, value] : model.header().metadata) {
    if (key == "format" || key == kContentsHash) continue;  // only for safetensors
    onnx::Property& property = *onnx.add_metadata_props();
    property.set_key(key);
    property.set_value(value);
    if (key == "muster_version") onnx.set_producer_version(value);
  }
  onnx::Network& network = *onnx.mutable_graph();
  const auto name = model.header().metadata.find("model");
  network.set_name(name == model.header().metadata.end() || name->second.empty() ? "network"
                                                                                 : name->second);
  const TorchTensors torch(graph);
  AddNodes(graph, torch, network);
  AddWeights(model, torch, network);
  std::string bytes;
  if (onnx.ByteSizeLong() > kMostMessageBytes || !onnx.SerializeToString(&bytes)) too_large();
  WriteFileAtomically(path, bytes);
}

}  // namespace muster
