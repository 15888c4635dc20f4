#include "common/config/limits.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/leading_zero.h"
#include "common/base/text.h"
#include "common/config/nearest_name.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

// Returns the range of the integer type T.
template <typename T>
std::pair<std::string, std::string> BoundsOf() {
  return {fmt::format("{}", std::numeric_limits<T>::min()),
          fmt::format("{}", std::numeric_limits<T>::max())};
}

std::pair<std::string, std::string> TypeBounds(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return BoundsOf<uint32_t>();
    case FieldDescriptor::CPPTYPE_UINT64:
      return BoundsOf<uint64_t>();
    case FieldDescriptor::CPPTYPE_INT32:
      return BoundsOf<int32_t>();
    case FieldDescriptor::CPPTYPE_INT64:
      return BoundsOf<int64_t>();
    default:
      return {};
  }
}

bool IsNumber(const FieldDescriptor& field) {
  const auto type = field.cpp_type();
  return type != FieldDescriptor::CPPTYPE_BOOL && type != FieldDescriptor::CPPTYPE_ENUM &&
         type != FieldDescriptor::CPPTYPE_STRING && type != FieldDescriptor::CPPTYPE_MESSAGE;
}

// Describes the allowed values: "a whole number, at least 1 and at most 1024 (processes)".
std::string RangeText(const FieldDescriptor& field) {
  const config::Limits& limits = field.options().GetExtension(config::limits);
  auto [least, most] = TypeBounds(field);
  std::string text = least.empty() ? "a number" : "a whole number";
  const auto add = [&](const std::string& words) {
    text += (text.ends_with("number") ? ", " : " and ") + words;
  };
  if (limits.has_min()) least = fmt::format("{}", limits.min());
  if (limits.has_max()) most = fmt::format("{}", limits.max());
  if (!least.empty() && !limits.has_above()) add("at least " + least);
  if (limits.has_above()) add(fmt::format("more than {}", limits.above()));
  if (!most.empty() && !limits.has_below()) add("at most " + most);
  if (limits.has_below()) add(fmt::format("less than {}", limits.below()));
  if (text == "a number") text = "a finite number";
  return limits.has_unit() ? fmt::format("{} ({})", text, limits.unit()) : text;
}

std::string WithoutQuotes(const std::string& text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// Advice for a scalar given in place of a message. Other frameworks accept scalars there.
std::string MessageFor(const pb::Descriptor& type, const std::string& value) {
  if (type.name() == "LearningRate")
    return fmt::format("; write learning_rate {{ base: {} }}", value);
  for (const auto& [types, key] : {std::pair{"Type", "type"}, {"Format", "format"}}) {
    const pb::EnumDescriptor* const names = type.FindEnumTypeByName(types);
    const auto* const found =
        names == nullptr ? nullptr : FindEnumValue(*names, WithoutQuotes(value));
    if (found != nullptr) return fmt::format("; write {{ {}: {} }}", key, found->name());
  }
  return "";
}

double Number(const pb::Message& message, const FieldDescriptor* field, int index) {
  const pb::Reflection* r = message.GetReflection();
  const bool list = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(list ? r->GetRepeatedInt64(message, field, index)
                                      : r->GetInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(list ? r->GetRepeatedUInt64(message, field, index)
                                      : r->GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return list ? r->GetRepeatedUInt32(message, field, index) : r->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT32:
      return list ? r->GetRepeatedInt32(message, field, index) : r->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return list ? r->GetRepeatedFloat(message, field, index) : r->GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? r->GetRepeatedDouble(message, field, index) : r->GetDouble(message, field);
    default:
      return 0;
  }
}

void CheckNumber(const FieldDescriptor* field, const std::string& key, double value,
                 ConfigErrors& errors) {
  const config::Limits& limits = field->options().GetExtension(config::limits);
  const bool ok = std::isfinite(value) && !(limits.has_min() && value < limits.min()) &&
                  !(limits.has_max() && value > limits.max()) &&
                  !(limits.has_above() && value <= limits.above()) &&
                  !(limits.has_below() && value >= limits.below());
  if (ok) return;
  // Print the value as typed: 0.1f is not 0.1 as a double.
  const bool single = field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT;
  errors.Fail(key, "expected {}, got {}", RangeText(*field),
              single ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value));
}

void CheckText(const FieldDescriptor* field, const std::string& key, const std::string& text,
               ConfigErrors& errors) {
  if (text.find('\0') != std::string::npos) {
    errors.Fail(key, "expected text, got text with a zero byte");
    return;
  }
  const size_t good = Utf8Prefix(text);
  if (good == text.size() || field->options().GetExtension(config::limits).path()) return;
  errors.Fail(key, "expected UTF-8 text, got the byte 0x{:02x} after \"{}\"",
              static_cast<uint8_t>(text[good]), text.substr(0, good));
}

void CheckMessage(const pb::Message& message, const std::string& path, ConfigErrors& errors) {
  const pb::Descriptor* type = message.GetDescriptor();
  const pb::Reflection* reflection = message.GetReflection();
  for (int f = 0; f < type->field_count(); ++f) {
    const FieldDescriptor* field = type->field(f);
    const std::string key = path + field->name();
    const int count = field->is_repeated() ? reflection->FieldSize(message, field)
                                           : reflection->HasField(message, field);
    if (count == 0 && field->options().GetExtension(config::limits).required()) {
      errors.Fail(key, "missing: expected a value");
    }
    for (int i = 0; i < count; ++i) {
      const std::string element = field->is_repeated() ? fmt::format("{}[{}]", key, i) : key;
      if (field->message_type() != nullptr) {
        CheckMessage(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                          : reflection->GetMessage(message, field),
                     element + ".", errors);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        CheckText(field, element,
                  field->is_repeated() ? reflection->GetRepeatedString(message, field, i)
                                       : reflection->GetString(message, field),
                  errors);
      } else if (IsNumber(*field)) {
        CheckNumber(field, element, Number(message, field, i), errors);
      }
    }
  }
}

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

// Whether a condition such as "run.trace_file" or "type=ADAM|ADAMW" holds. The condition's path
// starts in `message` if `message` has a field of the first name, otherwise in the config.
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

const pb::EnumValueDescriptor* FindEnumValue(const pb::EnumDescriptor& type, std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return type.FindValueByName(name);
}

std::string WrongValue(const FieldDescriptor& field, const std::string& value) {
  const std::string got = value.empty() ? "nothing" : value;
  if (const pb::EnumDescriptor* const values = field.enum_type()) {
    if (values == config::Padding_descriptor() &&
        std::isdigit(static_cast<unsigned char>(value[0]))) {
      return fmt::format("expected a name, got {0}; write padding: EXPLICIT pad: {0}", value);
    }
    const std::string plain = WithoutQuotes(value);
    if (const auto* const known = FindEnumValue(*values, plain); known != nullptr && plain != value)
      return fmt::format("expected {} without quotes, got {}", known->name(), value);
    std::vector<std::string> names;
    names.reserve(static_cast<size_t>(values->value_count()));
    for (int v = 0; v < values->value_count(); ++v) names.push_back(values->value(v)->name());
    return fmt::format("unknown value {}; {}", got, SuggestName(plain, names));
  }
  if (const pb::Descriptor* const type = field.message_type()) {
    return fmt::format("expected {{ KEY: VALUE ... }} with keys from {}, got {}{}",
                       Join(FieldNames(type), ", "), got, MessageFor(*type, value));
  }
  if (IsNumber(field)) {
    if (!FirstMatch("^[+-]?[0-9]+,[0-9]+$", value).empty()) {
      return fmt::format("expected {}, got {}: write a point instead of the comma",
                         RangeText(field), value);
    }
    // A list is written [3, 03].
    const bool octal = !FirstMatch("(^|[[, ])[+-]?0[0-9]", value).empty();
    return fmt::format("expected {}, got {}{}{}", RangeText(field), got, octal ? ": " : "",
                       octal ? kLeadingZero : "");
  }
  const bool text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  const bool curly =
      text && !FirstMatch("^(\u201c|\u201d|\u201e|\u2018|\u2019|\u00ab)", value).empty();
  return fmt::format("expected {}, got {}{}", text ? "text in quotes" : "true or false", got,
                     curly ? ": write plain quotes, \"" : "");
}

void CheckRanges(const config::Config& config, ConfigErrors& errors) {
  CheckMessage(config, "", errors);
}

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
  const config::Preprocess& preprocess = config.data().preprocess();
  if (preprocess.measure_mean_stddev() && preprocess.mean_size() + preprocess.stddev_size() > 0) {
    lines.emplace_back(
        "data.preprocess.measure_mean_stddev=true: needs mean and stddev to be left out");
  }
  Add(config, config, "", lines);
  return lines;
}

}  // namespace muster
