#include "ps/tensorboard/summaries.h"

#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>

#include <sstream>
#include <vector>

#include "common/base/text.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

void AddString(tensorboard::Summary& summary, const std::string& tag, const char* plugin,
               const std::string& content) {
  tensorboard::Summary::Value& one = *summary.add_value();
  one.set_tag(tag);
  one.mutable_metadata()->mutable_plugin_data()->set_plugin_name(plugin);
  tensorboard::Tensor& tensor = *one.mutable_tensor();
  tensor.set_dtype(tensorboard::DT_STRING);
  tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  tensor.add_string_val(content);
}

}  // namespace

void AddScalar(tensorboard::Summary& summary, const std::string& tag, double value) {
  tensorboard::Summary::Value& one = *summary.add_value();
  one.set_tag(tag);
  one.set_simple_value(static_cast<float>(value));
}

void AddText(tensorboard::Summary& summary, const std::string& tag, const std::string& text) {
  AddString(summary, tag, "text", text);
}

void AddLayout(tensorboard::Summary& summary, const tensorboard::Layout& layout) {
  AddString(summary, "custom_scalars__config__", "custom_scalars", layout.SerializeAsString());
}

void AddPluginData(tensorboard::Summary& summary, const std::string& tag, const std::string& plugin,
                   const std::string& content) {
  tensorboard::Summary::Value& one = *summary.add_value();
  one.set_tag(tag);
  one.mutable_metadata()->mutable_plugin_data()->set_plugin_name(plugin);
  one.mutable_metadata()->mutable_plugin_data()->set_content(content);
  // Every value needs a tensor, but the plugin ignores it.
  tensorboard::Tensor& tensor = *one.mutable_tensor();
  tensor.set_dtype(tensorboard::DT_FLOAT);
  tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  tensor.add_float_val(0);
}

std::string AsCode(const std::string& text) {
  std::istringstream lines(text);
  std::string code;
  for (std::string line; std::getline(lines, line);) code += "    " + line + "\n";
  return code;
}

namespace {

constexpr const char* kImage = "data";

// Sets the output shape; -1 stands for the batch size.
void SetShape(const Shape& shape, tensorboard::Node& node) {
  tensorboard::Shape& output =
      *(*node.mutable_attr())["_output_shapes"].mutable_list()->add_shape();
  for (const int64_t size :
       {int64_t{-1}, int64_t{shape.height}, int64_t{shape.width}, int64_t{shape.channels}}) {
    output.add_dim()->set_size(size);
  }
}

}  // namespace

tensorboard::GraphDef GraphDefOf(const Graph& graph) {
  tensorboard::GraphDef def;
  tensorboard::Node& image = *def.add_node();
  image.set_name(kImage);
  image.set_op("Placeholder");
  SetShape(graph.input_shape(), image);
  for (size_t i = 0; i < graph.layers().size(); ++i) {
    const Layer& layer = graph.layers()[i];
    tensorboard::Node& node = *def.add_node();
    node.set_name(layer.name);
    node.set_op(layer.kind);
    for (const int input : layer.inputs) {
      node.add_input(input == Layer::kData ? kImage
                                           : graph.layers()[static_cast<size_t>(input)].name);
    }
    SetShape(layer.output_shape, node);
    for (const Variable& variable : graph.variables()) {
      if (variable.layer != static_cast<int>(i)) continue;
      node.add_input(variable.name);
      tensorboard::Node& leaf = *def.add_node();
      leaf.set_name(variable.name);
      leaf.set_op("Variable");
      (*leaf.mutable_attr())["shape"].set_s(variable.ShapeString());
      (*leaf.mutable_attr())["parameters"].set_i(static_cast<int64_t>(variable.count));
    }
  }
  return def;
}

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Hparams = google::protobuf::Map<std::string, google::protobuf::Value>;

google::protobuf::Value ValueOf(const Message& message, const FieldDescriptor& field) {
  google::protobuf::Value value;
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, &field, -1, &text);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      value.set_bool_value(text == "true");
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      value.set_string_value(text);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      value.set_string_value(ValidUtf8(message.GetReflection()->GetString(message, &field)));
      break;
    default:
      value.set_number_value(std::strtod(text.c_str(), nullptr));
  }
  return value;
}

// Adds the scalar settings of `message` that are set, including resolved defaults, and recurses
// into submessages.
void Put(const std::string& prefix, const Message& message, Hparams& hparams) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) continue;
    const std::string name = prefix + "." + field->name();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Put(name, message.GetReflection()->GetMessage(message, field), hparams);
    } else {
      hparams[name] = ValueOf(message, *field);
    }
  }
}

}  // namespace

tensorboard::HparamsPluginData HparamsOf(const config::Config& config, const std::string& group,
                                         double unix_time) {
  tensorboard::HparamsPluginData data;
  tensorboard::SessionStart& start = *data.mutable_session_start_info();
  start.set_group_name(group);
  start.set_start_time_secs(unix_time);
  Hparams& hparams = *start.mutable_hparams();
  hparams["model"].set_string_value(config.model().name());
  Put("optimizer", config.optimizer(), hparams);
  Put("learning_rate", config.learning_rate(), hparams);
  Put("preprocess", config.data().preprocess(), hparams);
  config::Run run = config.run();
  run.clear_dir();  // already in the group's name; paths do not affect the result
  run.clear_trace_file();
  run.clear_trace_first_step();
  run.clear_trace_steps();
  Put("run", run, hparams);
  hparams["cluster.wire_dtype"].set_string_value(
      config::Cluster::WireDtype_Name(config.cluster().wire_dtype()));
  return data;
}

tensorboard::HparamsPluginData HparamsEnd(bool completed, double unix_time) {
  tensorboard::HparamsPluginData data;
  data.mutable_session_end_info()->set_status(completed ? tensorboard::SessionEnd::STATUS_SUCCESS
                                                        : tensorboard::SessionEnd::STATUS_FAILURE);
  data.mutable_session_end_info()->set_end_time_secs(unix_time);
  return data;
}

}  // namespace muster
