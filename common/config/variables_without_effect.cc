#include "common/config/variables_without_effect.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <memory>

namespace muster {

namespace pb = google::protobuf;

std::string ValueText(const pb::Message& message, const pb::FieldDescriptor* field) {
  std::string text;
  pb::TextFormat::PrintFieldValueToString(message, field, -1, &text);
  return text;
}

bool IsDefault(const pb::Message& message, const pb::FieldDescriptor* field) {
  const std::unique_ptr<pb::Message> untouched(message.New());
  return field->has_default_value() && ValueText(message, field) == ValueText(*untouched, field);
}

namespace {

void AddVariable(const config::Variable& variable, const std::string& path,
                 std::vector<NoEffect>& all) {
  const config::Initializer& initializer = variable.initializer();
  const auto add = [&](const pb::Message& message, const char* key, const std::string& reason) {
    const pb::FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(
        std::string(key).substr(std::string(key).rfind('.') + 1));
    if (!message.GetReflection()->HasField(message, field) || IsDefault(message, field)) return;
    all.push_back({path + key, ValueText(message, field), reason});
  };
  const std::string type =
      "the initializer's type is " + config::Initializer::Type_Name(initializer.type());
  if (initializer.type() != config::Initializer::CONSTANT) {
    add(initializer, ".initializer.value", type);
  }
  if (initializer.type() != config::Initializer::TRUNCATED_NORMAL) {
    add(initializer, ".initializer.stddev", type);
  }
  if (variable.learning_rate_multiplier() == 0) {
    add(variable, ".weight_decay", "learning_rate_multiplier is 0: the variable stays as it is");
  }
}

}  // namespace

void AddVariablesWithoutEffect(const config::Model& model, std::vector<NoEffect>& all) {
  const auto* const kinds = config::Layer::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < model.layer_size(); ++i) {
    const config::Layer& layer = model.layer(i);
    const auto* const kind = layer.GetReflection()->GetOneofFieldDescriptor(layer, kinds);
    if (kind == nullptr) continue;
    const google::protobuf::Message& settings = layer.GetReflection()->GetMessage(layer, kind);
    for (int f = 0; f < settings.GetDescriptor()->field_count(); ++f) {
      const auto* const field = settings.GetDescriptor()->field(f);
      if (field->message_type() != config::Variable::descriptor()) continue;
      const auto& variable = static_cast<const config::Variable&>(
          settings.GetReflection()->GetMessage(settings, field));
      AddVariable(variable, fmt::format("model.layer[{}].{}.{}", i, kind->name(), field->name()),
                  all);
    }
  }
}

}  // namespace muster
