#include "ps/tensorboard/summary_values.h"

#include <sstream>

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
  // Every value has a tensor; the plugin does not look at it.
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

}  // namespace muster
