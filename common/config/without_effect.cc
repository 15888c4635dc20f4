#include "common/config/without_effect.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <memory>

#include "common/base/error.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

std::vector<std::string> Split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + separator.size();
  }
}

std::string ValueText(const pb::Message& message, const pb::FieldDescriptor* field) {
  if (field->message_type() != nullptr) return "{ ... }";
  std::string text;
  pb::TextFormat::PrintFieldValueToString(message, field, -1, &text);
  return text;
}

bool IsDefault(const pb::Message& message, const pb::FieldDescriptor* field) {
  const std::unique_ptr<pb::Message> untouched(message.New());
  return field->has_default_value() && ValueText(message, field) == ValueText(*untouched, field);
}

// Whether a condition such as "run.trace_file" or "type=ADAM|ADAMW" holds. Its path begins in
// `message`, or else in the whole config.
bool Holds(const std::string& condition, const pb::Message& config, const pb::Message& message) {
  const size_t equals = condition.find('=');
  const std::vector<std::string> path = Split(condition.substr(0, equals), ".");
  const bool near = message.GetDescriptor()->FindFieldByName(path[0]) != nullptr;
  const pb::Message* at = near ? &message : &config;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    at = &at->GetReflection()->GetMessage(*at, at->GetDescriptor()->FindFieldByName(path[i]));
  }
  const pb::FieldDescriptor* const field = at->GetDescriptor()->FindFieldByName(path.back());
  MUSTER_CHECK(field != nullptr);
  const std::string value = ValueText(*at, field);
  if (equals == std::string::npos) return value != "0" && value != "false" && value != "\"\"";
  for (const std::string& wanted : Split(condition.substr(equals + 1), "|")) {
    if (value == wanted) return true;
  }
  return false;
}

void Add(const config::Config& config, const pb::Message& message, const std::string& path,
         std::vector<std::string>& lines) {
  const pb::Reflection* const reflection = message.GetReflection();
  std::vector<const pb::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const std::string key = path + field->name();
    const std::string need = UnmetNeed(config, message, *field);
    if (!need.empty()) {
      if (IsDefault(message, field)) continue;
      const std::string value = field->is_repeated() ? "[...]" : ValueText(message, field);
      lines.push_back(fmt::format("{}={}: needs {}", key, value, need));
    } else if (field->message_type() == nullptr) {
      continue;
    } else if (!field->is_repeated()) {
      Add(config, reflection->GetMessage(message, field), key + ".", lines);
    } else {
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
        Add(config, reflection->GetRepeatedMessage(message, field, i),
            fmt::format("{}[{}].", key, i), lines);
      }
    }
  }
}

}  // namespace

std::string UnmetNeed(const config::Config& config, const pb::Message& message,
                      const pb::FieldDescriptor& field) {
  for (const std::string& need : field.options().GetExtension(config::limits).needs()) {
    bool holds = false;
    for (const std::string& one : Split(need, " or ")) holds |= Holds(one, config, message);
    if (!holds) return need;
  }
  return "";
}

std::vector<std::string> WithoutEffect(const config::Config& config) {
  std::vector<std::string> lines;
  Add(config, config, "", lines);
  return lines;
}

}  // namespace muster
