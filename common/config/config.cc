#include "common/config/config.h"

#include <google/protobuf/text_format.h>

#include <filesystem>
#include <utility>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/config_check.h"
#include "common/config/data_format.h"
#include "common/config/limits.h"
#include "common/config/text_format.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
namespace pb = google::protobuf;

// Reads the network from model_file, relative to `directory`.
void IncludeModel(config::Config& config, const fs::path& directory, ConfigErrors& errors) {
  const std::string file = (directory / config.model_file()).string();
  config::Model model;
  const size_t before = errors.noted();
  try {
    ParseTextFile(file, "model", model, errors);
  } catch (const Error& error) {
    if (errors.noted() != before) throw;  // the collected errors
    const std::string named_at = errors.Where("model_file") + ": model_file: ";
    errors.AddUnread("model", (fs::exists(file) ? "" : named_at) + error.what());
  }
  *config.mutable_model() = std::move(model);
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

// The last dense layer's `units` default to the number of classes, or to 1 for values.
void FillInUnits(config::Config& config) {
  if (!config.has_model() || config.model().layer_size() < 2) return;
  config::Layer& last = *config.mutable_model()->mutable_layer(config.model().layer_size() - 2);
  const int64_t classes = DataClasses(config.data());
  const bool has_values = HasValues(config.data());
  if (!last.has_dense() || last.dense().has_units() || (classes == 0 && !has_values)) return;
  last.mutable_dense()->set_units(has_values ? 1 : static_cast<uint32_t>(classes));
}

}  // namespace

bool HasProgram(const config::Config& config) { return config.worker().program_size() > 0; }

Setting ParseSetting(const std::string& text) {
  const size_t equals = text.find('=');
  std::string origin = "--set " + Shown(text);
  if (equals == std::string::npos || equals == 0) {
    throw Error(ExitCode::kUsage, "{}: expected path.to.key=value", origin);
  }
  return {text.substr(0, equals), text.substr(equals + 1), std::move(origin)};
}

config::Config LoadConfig(const std::string& path, const std::vector<Setting>& settings,
                          std::vector<std::string>* removed) {
  config::Config config;
  ConfigErrors errors(path);
  ParseTextFile(path, "", config, errors);
  fs::path directory = fs::path(path).parent_path();
  for (const Setting& setting : settings) {
    if (setting.path != "model_file") continue;
    SetField(config, setting, errors);
    directory.clear();
  }
  if (config.has_model_file()) IncludeModel(config, directory, errors);
  for (const Setting& setting : settings) {
    if (setting.path != "model_file") SetField(config, setting, errors);
  }
  if (config.has_data()) ResolveFromFiles(*config.mutable_data());
  FillInUnits(config);
  CheckConfig(config, errors);
  if (removed != nullptr) *removed = errors.removed;
  return config;
}

void ChangeConfig(config::Config& config, const std::vector<Setting>& settings,
                  const std::string& path) {
  ConfigErrors errors(path);
  for (const Setting& setting : settings) SetField(config, setting, errors);
  CheckConfig(config, errors);
}

config::Config ReadResolvedConfig(const std::string& path) {
  config::Config config = LoadConfig(path, {});
  const bool resolved = config.cluster().has_workers() && config.run().has_slices() &&
                        config.worker().threads() > 0 && config.server().threads() > 0;
  if (resolved) return config;
  throw Error(ExitCode::kUsage,
              "{}: expected a resolved config from a run directory: start this process with "
              "`muster launch`, `muster server` or `muster worker`",
              path);
}

config::Config ParseConfigText(const std::string& text, const std::string& origin) {
  config::Config config;
  ConfigErrors errors(origin);
  const PlaceOfLine place = [&](int line) { return fmt::format("{}:{}", origin, line + 1); };
  ParseText(text, place, "", config, errors);
  CheckConfig(config, errors);
  return config;
}

config::Config WithDefaults(const config::Config& config) {
  config::Config full = WithMessages(config);
  SpellOutDefaults(nullptr, full);
  return full;
}

std::string ConfigText(const config::Config& config) {
  config::Config full = WithMessages(config);
  SpellOutDefaults(&config, full);
  std::string text;
  pb::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetUseUtf8StringEscaping(true);
  MUSTER_CHECK(printer.PrintToString(full, &text));
  // Paths may contain any byte, but checkpoints and weight files store this text as UTF-8.
  return EscapedUtf8(text);
}

void WriteConfig(const config::Config& config, const std::string& path) {
  WriteFileAtomically(path,
                      "# Written by muster launch; launching from this file repeats the run.\n" +
                          ConfigText(config));
}

}  // namespace muster
