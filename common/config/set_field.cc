#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/leading_zero.h"
#include "common/config/limits.h"
#include "common/config/nearest_name.h"
#include "common/config/text_format.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

// Splits "a.b[c].d" at the dots outside brackets.
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

// Returns the index of the element that "[2]" or "[conv1]" refers to.
int FindElement(pb::Message& parent, const pb::FieldDescriptor* field, const std::string& which,
                const std::string& origin) {
  const pb::Reflection* reflection = parent.GetReflection();
  const int size = reflection->FieldSize(parent, field);
  if (!which.empty() &&
      std::all_of(which.begin(), which.end(), [](unsigned char c) { return std::isdigit(c); })) {
    if (HasLeadingZero(which)) {
      throw Error(ExitCode::kUsage, "{}: {}[{}]: {}", origin, field->name(), which, kLeadingZero);
    }
    const long index = which.size() < 9 ? std::stol(which) : size;
    if (index < size) return static_cast<int>(index);
    throw Error(ExitCode::kUsage, "{}: {}[{}]: no such element: there are {}, counted from 0",
                origin, field->name(), which, size);
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

// Refuses two command line settings that exclude each other; otherwise the later one would silently
// win. A setting from the file may be replaced.
void RefuseSecondOfOneof(const pb::FieldDescriptor* field, const std::string& walked,
                         const std::string& origin, const ConfigErrors& errors) {
  const pb::OneofDescriptor* const oneof = field->real_containing_oneof();
  if (oneof == nullptr) return;
  for (int i = 0; i < oneof->field_count(); ++i) {
    const pb::FieldDescriptor* const other = oneof->field(i);
    const auto found = errors.locations.find(walked + other->name());
    if (other == field || found == errors.locations.end() || !found->second.starts_with("--"))
      continue;
    throw Error(ExitCode::kUsage, "{}: conflicts with {}: expected exactly one of {}, {}", origin,
                found->second, walked + other->name(), walked + field->name());
  }
}

// Replaces the field's value with the setting's value.
void SetValue(pb::Message& message, const pb::FieldDescriptor* field, const std::string& walked,
              const Setting& setting, ConfigErrors& errors) {
  RefuseSecondOfOneof(field, walked, setting.origin, errors);
  const std::string key = walked + field->name();
  const std::string& value = setting.value;
  const std::unique_ptr<pb::Message> fresh(message.New());
  const bool quoted = value.starts_with('"') || value.starts_with('\'');
  const bool is_text = field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING && !quoted;
  if (is_text && field->is_repeated() && !value.starts_with('[')) {
    std::istringstream words(value);
    for (std::string word; std::getline(words >> std::ws, word, ',');) {
      word.resize(word.find_last_not_of(' ') + 1);
      fresh->GetReflection()->AddString(fresh.get(), field, word);
    }
  } else if (field->message_type() != nullptr || field->is_repeated()) {
    const size_t before = errors.noted();
    ParseText(
        fmt::format("{}: {}", field->name(), value), [&](int) { return setting.origin; },
        walked.empty() ? walked : walked.substr(0, walked.size() - 1), *fresh, errors);
    if (errors.noted() != before) return;
    std::vector<const pb::FieldDescriptor*> set;
    fresh->GetReflection()->ListFields(*fresh, &set);
    // A value such as "{} seed: 7" would set other keys too.
    if (set.size() > 1 || (set.size() == 1 && set[0] != field)) {
      throw Error(ExitCode::kUsage, "{}: expected one value for {}", setting.origin, key);
    }
  } else if (is_text) {
    fresh->GetReflection()->SetString(fresh.get(), field, value);
  } else if (!SetScalar(*fresh, *field, value)) {
    throw Error(ExitCode::kUsage, "{}: {}: {}", setting.origin, key, WrongValue(*field, value));
  }
  message.GetReflection()->ClearField(&message, field);
  message.MergeFrom(*fresh);
  std::erase_if(errors.locations, [&](const auto& location) {
    const std::string& other = location.first;
    return other.starts_with(key) && other.size() > key.size() &&
           (other[key.size()] == '.' || other[key.size()] == '[');
  });
  errors.locations[key] = setting.origin;
}

void Set(pb::Message& config, const Setting& setting, ConfigErrors& errors) {
  const std::string& origin = setting.origin;
  pb::Message* at = &config;
  const std::vector<std::string> parts = SplitPath(setting.path);
  if (parts[0] == "resolved") {
    throw Error(ExitCode::kUsage,
                "{}: resolved holds what Muster computed: leave it out of the path", origin);
  }
  std::string walked;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string name = parts[i], which;
    const size_t bracket = name.find('[');
    if (bracket != std::string::npos && name.back() == ']') {
      which = name.substr(bracket + 1, name.size() - bracket - 2);
      name.resize(bracket);
    }
    const pb::FieldDescriptor* field = at->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr && at->GetDescriptor()->IsReservedName(name)) {
      errors.removed.push_back(fmt::format("{}: {}{}", origin, walked, name));
      return;
    }
    if (field == nullptr) {
      throw Error(ExitCode::kUsage, "{}: {}{}: {}", origin, walked, name,
                  UnknownKey(at->GetDescriptor(), name));
    }
    const bool last = i + 1 == parts.size();
    if (last && bracket == std::string::npos) return SetValue(*at, field, walked, setting, errors);
    if (field->message_type() == nullptr) {
      throw Error(ExitCode::kUsage, "{}: {}{} has no fields", origin, walked, name);
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

}  // namespace

void SetField(config::Config& config, const Setting& setting, ConfigErrors& errors) {
  const size_t before = errors.noted();
  try {
    Set(config, setting, errors);
  } catch (const Error& error) {
    if (errors.noted() == before) errors.AddUnread(setting.path, error.what());
  }
}

}  // namespace muster
