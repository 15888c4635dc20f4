#include "common/config/set_field.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <vector>

#include "common/base/error.h"
#include "common/config/nearest_name.h"
#include "common/config/number_range.h"
#include "common/config/text_errors.h"
#include "common/config/text_fields.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

// Splits "a.b[c].d" at the dots outside of brackets.
std::vector<std::string> SplitPath(const std::string& path) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : path) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == '.' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Index of the element that "[2]" or "[conv1]" means.
int FindElement(pb::Message& parent, const pb::FieldDescriptor* field, const std::string& which,
                const std::string& origin) {
  const pb::Reflection* reflection = parent.GetReflection();
  const int size = reflection->FieldSize(parent, field);
  if (!which.empty() &&
      std::all_of(which.begin(), which.end(), [](unsigned char c) { return std::isdigit(c); })) {
    const long index = which.size() < 9 ? std::stol(which) : size;
    if (index < size) return static_cast<int>(index);
    throw Error(ExitCode::kUsage, "{}: {}[{}]: there are {} elements, counted from 0", origin,
                field->name(), which, size);
  }
  std::vector<std::string> names;
  if (const pb::FieldDescriptor* name = field->message_type()->FindFieldByName("name")) {
    for (int i = 0; i < size; ++i) {
      const pb::Message& element = reflection->GetRepeatedMessage(parent, field, i);
      names.push_back(element.GetReflection()->GetString(element, name));
      if (names.back() == which) return i;
    }
  }
  throw Error(ExitCode::kUsage, "{}: {}[{}]: no element has this name; {}", origin, field->name(),
              which, SuggestName(which, names));
}

std::string AsFieldText(const pb::FieldDescriptor* field, const std::string& value) {
  std::string text = value;
  if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING && !field->is_repeated() &&
      (value.empty() || (value.front() != '"' && value.front() != '\''))) {
    text = "\"";
    for (const unsigned char c : value) {
      if (c == '"' || c == '\\' || c < 32) {
        text += fmt::format("\\{:03o}", c);
      } else {
        text += static_cast<char>(c);
      }
    }
    text += "\"";
  }
  return fmt::format("{}{} {}", field->name(),
                     field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE ? "" : ":", text);
}

// The parser's words for these are about its tokens: "Expected integer, got: -".
void RefuseNumber(const pb::FieldDescriptor* field, const std::string& walked,
                  const std::string& value, const std::string& origin) {
  if (field->is_repeated() || !IsNumber(*field)) return;
  throw Error(ExitCode::kUsage, "{}: {}{}: expected {}, got {}", origin, walked, field->name(),
              RangeText(*field), value.empty() ? "nothing" : value);
}

// Two settings of the command line that exclude each other: the later one would silently win. One
// of the file is meant to be replaced.
void RefuseSecondOfOneof(const pb::FieldDescriptor* field, const std::string& walked,
                         const std::string& origin, const Locations& locations) {
  const pb::OneofDescriptor* const oneof = field->real_containing_oneof();
  if (oneof == nullptr) return;
  for (int i = 0; i < oneof->field_count(); ++i) {
    const pb::FieldDescriptor* const other = oneof->field(i);
    const auto found = locations.find(walked + other->name());
    if (other == field || found == locations.end() || !found->second.starts_with("--")) continue;
    throw Error(ExitCode::kUsage, "{}: excludes {}: expected exactly one of {}, {}", origin,
                found->second, walked + other->name(), walked + field->name());
  }
}

}  // namespace

void SetField(pb::Message& config, const std::string& path, const std::string& value,
              const std::string& origin, Locations& locations) {
  pb::Message* at = &config;
  const std::vector<std::string> parts = SplitPath(path);
  std::string walked;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string name = parts[i], which;
    const size_t bracket = name.find('[');
    if (bracket != std::string::npos && name.back() == ']') {
      which = name.substr(bracket + 1, name.size() - bracket - 2);
      name.resize(bracket);
    }
    const pb::FieldDescriptor* field = at->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) {
      throw Error(ExitCode::kUsage, "{}: {}{}: unknown key; {}", origin, walked, name,
                  SuggestName(name, FieldNames(at->GetDescriptor())));
    }
    const bool last = i + 1 == parts.size();
    if (last && bracket == std::string::npos) {
      pb::TextFormat::Parser parser;
      // On a command line the names of an enum may be written in any case.
      const std::string text = EnumsInTheirCase(at->GetDescriptor(), AsFieldText(field, value));
      TextErrors errors(at->GetDescriptor(), text);
      parser.RecordErrorsTo(&errors);
      std::unique_ptr<pb::Message> fresh(at->New());
      if (!parser.ParseFromString(text, fresh.get())) {
        RefuseNumber(field, walked, value, origin);
        throw Error(ExitCode::kUsage, "{}: {}{}", origin, walked, errors.first());
      }
      if (const auto lost = FindLostNumber(at->GetDescriptor(), text)) {
        throw Error(ExitCode::kUsage, "{}: {}{}", origin, walked, LostNumberText(*lost));
      }
      std::vector<const pb::FieldDescriptor*> set;
      fresh->GetReflection()->ListFields(*fresh, &set);
      // A value such as "5 seed: 7" would smuggle in other keys.
      if (set.size() > 1 || (set.size() == 1 && set[0] != field)) {
        throw Error(ExitCode::kUsage, "{}: expected one value for {}", origin, path);
      }
      RefuseSecondOfOneof(field, walked, origin, locations);
      at->GetReflection()->ClearField(at, field);
      at->MergeFrom(*fresh);
      const std::string full = walked + name;
      for (auto it = locations.lower_bound(full);
           it != locations.end() && it->first.starts_with(full);) {
        const char next = it->first.size() == full.size() ? '.' : it->first[full.size()];
        it = next == '.' || next == '[' ? locations.erase(it) : std::next(it);
      }
      locations[full] = origin;
      return;
    }
    if (field->message_type() == nullptr) {
      throw Error(ExitCode::kUsage, "{}: {}{} has no parts to set", origin, walked, name);
    }
    if (field->is_repeated()) {
      if (bracket == std::string::npos || last) {
        throw Error(ExitCode::kUsage, "{}: {}{} is a list: expected {}[NAME].KEY", origin, walked,
                    name, name);
      }
      const int element = FindElement(*at, field, which, origin);
      walked += fmt::format("{}[{}].", name, element);
      at = at->GetReflection()->MutableRepeatedMessage(at, field, element);
    } else {
      if (bracket != std::string::npos) {
        throw Error(ExitCode::kUsage, "{}: {}{} is not a list", origin, walked, name);
      }
      walked += name + ".";
      at = at->GetReflection()->MutableMessage(at, field);
    }
  }
}

}  // namespace muster
