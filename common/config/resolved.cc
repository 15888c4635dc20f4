#include "common/config/resolved.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/limits.h"
#include "common/config/text_format.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

std::vector<const FieldDescriptor*> FieldsOf(const pb::Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

bool Has(const pb::Message& message, const FieldDescriptor& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

// Removes the settings that `other` has, or those that it lacks. Lists are one setting.
void Remove(bool those_of_other, const pb::Message& other, pb::Message& message) {
  const pb::Reflection& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : FieldsOf(message)) {
    if (field->message_type() != nullptr && !field->is_repeated() && Has(other, *field)) {
      pb::Message& inner = *reflection.MutableMessage(&message, field);
      if (FieldsOf(inner).empty()) continue;  // its presence may mean something
      Remove(those_of_other, reflection.GetMessage(other, field), inner);
      if (FieldsOf(inner).empty()) reflection.ClearField(&message, field);
    } else if (Has(other, *field) == those_of_other) {
      reflection.ClearField(&message, field);
    }
  }
}

// Sets every unset scalar field of the messages that are present to its default. With `config`,
// skips fields that have no effect in that config.
void SpellOutDefaults(const config::Config* config, pb::Message& message) {
  const pb::Descriptor* type = message.GetDescriptor();
  const pb::Reflection* r = message.GetReflection();
  for (int f = 0; f < type->field_count(); ++f) {
    const pb::FieldDescriptor* field = type->field(f);
    if (field->message_type() != nullptr) {
      if (field->is_repeated()) {
        for (int i = 0; i < r->FieldSize(message, field); ++i) {
          SpellOutDefaults(config, *r->MutableRepeatedMessage(&message, field, i));
        }
      } else if (r->HasField(message, field)) {
        SpellOutDefaults(config, *r->MutableMessage(&message, field));
      }
      continue;
    }
    if (field->is_repeated() || r->HasField(message, field) || !field->has_default_value() ||
        (config != nullptr && !UnmetNeed(*config, message, *field).empty())) {
      continue;
    }
    switch (field->cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_INT64:
        r->SetInt64(&message, field, field->default_value_int64());
        break;
      case pb::FieldDescriptor::CPPTYPE_UINT64:
        r->SetUInt64(&message, field, field->default_value_uint64());
        break;
      case pb::FieldDescriptor::CPPTYPE_UINT32:
        r->SetUInt32(&message, field, field->default_value_uint32());
        break;
      case pb::FieldDescriptor::CPPTYPE_FLOAT:
        r->SetFloat(&message, field, field->default_value_float());
        break;
      case pb::FieldDescriptor::CPPTYPE_DOUBLE:
        r->SetDouble(&message, field, field->default_value_double());
        break;
      case pb::FieldDescriptor::CPPTYPE_BOOL:
        r->SetBool(&message, field, field->default_value_bool());
        break;
      case pb::FieldDescriptor::CPPTYPE_ENUM:
        r->SetEnum(&message, field, field->default_value_enum());
        break;
      default:
        break;
    }
  }
}

// Adds the messages whose defaults a written config must contain.
config::Config WithMessages(const config::Config& config) {
  config::Config full = config;
  full.mutable_run();
  full.mutable_cluster();
  if (!HasProgram(config)) {
    config::Data& data = *full.mutable_data();
    for (int f = 0; f < data.GetDescriptor()->field_count(); ++f) {
      const pb::FieldDescriptor* const field = data.GetDescriptor()->field(f);
      if (field->message_type() == nullptr || !UnmetNeed(config, data, *field).empty()) continue;
      data.GetReflection()->MutableMessage(&data, field);
    }
  }
  full.mutable_optimizer();
  full.mutable_evaluation();
  full.mutable_server();
  full.mutable_worker();
  full.mutable_deadlines();
  full.mutable_checkpoint();
  return full;
}

config::Config WithDefaultsInEffect(const config::Config& config) {
  config::Config full = WithMessages(config);
  SpellOutDefaults(&config, full);
  return full;
}

std::string TextOf(const config::Config& config) {
  std::string text;
  pb::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetUseUtf8StringEscaping(true);
  MUSTER_CHECK(printer.PrintToString(config, &text));
  // Paths may contain any byte, but checkpoints and weight files store this text as UTF-8.
  return EscapedUtf8(text);
}

}  // namespace

config::Config WithDefaults(const config::Config& config) {
  config::Config full = WithMessages(config);
  SpellOutDefaults(nullptr, full);
  return full;
}

std::string ConfigText(const config::Config& config) {
  return TextOf(WithDefaultsInEffect(config));
}

std::string RunConfigText(config::Config written, const config::Config& config) {
  written.mutable_run()->clear_dir();
  config::Config parts = WithDefaultsInEffect(config), resolved = parts;
  Remove(false, written, parts);
  Remove(true, written, resolved);
  *parts.mutable_resolved() = std::move(resolved);
  return std::string(kWrittenByMuster) + "; launching from this file " + kInNewDirectory +
         TextOf(parts);
}

void WriteRunConfig(const config::Config& written, const config::Config& config,
                    const std::string& path) {
  WriteFileAtomically(path, RunConfigText(written, config));
}

config::Config WrittenIn(const std::string& path) {
  config::Config config;
  ConfigErrors errors(path);
  try {
    (void)ParseTextFile(path, "", config, errors);
  } catch (const Error&) {  // the checkpoint has every value
    return {};
  }
  if (!errors.empty() || !config.has_resolved()) return {};
  config.clear_resolved();
  return config;
}

void ForgetPlace(const std::vector<Setting>& settings, config::Config& resolved) {
  resolved.mutable_run()->clear_dir();
  if (std::ranges::find(settings, "worker.devices", &Setting::path) == settings.end()) return;
  config::Worker& worker = *resolved.mutable_worker();
  if (worker.soft_placement()) worker.clear_soft_placement();
  if (worker.backend() == config::Worker::CPU) worker.clear_backend();
}

void MergeResolved(config::Config& config, ConfigErrors& errors) {
  if (!config.has_resolved()) return;
  config::Config merged;
  merged.Swap(config.mutable_resolved());
  config.clear_resolved();
  if (merged.has_resolved()) errors.Fail("resolved.resolved", "expected no further level");
  merged.clear_resolved();
  Remove(true, config, merged);  // lists would add up
  merged.MergeFrom(config);
  config.Swap(&merged);
  constexpr std::string_view kPrefix = "resolved.";
  const std::map<std::string, std::string> locations = errors.locations;
  for (const auto& [key, where] : locations) {
    if (key.starts_with(kPrefix)) errors.locations.emplace(key.substr(kPrefix.size()), where);
  }
}

}  // namespace muster
