// A config as text: what a run directory keeps, and files of weights.
#include <google/protobuf/text_format.h>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/utf8.h"
#include "common/config/config.h"
#include "common/config/without_effect.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

// Spells out the default of every plain field of the messages that are there. With `config`, only
// of those that have an effect in it.
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

// With the messages that have defaults to spell out.
config::Config WithMessages(const config::Config& config) {
  config::Config full = config;
  full.mutable_run();
  full.mutable_cluster();
  full.mutable_data()->mutable_preprocess();
  if (full.data().format() == config::Data::SYNTHETIC) full.mutable_data()->mutable_synthetic();
  if (full.data().format() == config::Data::MNIST) full.mutable_data()->mutable_mnist();
  full.mutable_optimizer();
  full.mutable_evaluation();
  full.mutable_server();
  full.mutable_worker();
  full.mutable_deadlines();
  full.mutable_checkpoint();
  return full;
}

}  // namespace

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
  // Paths may hold any byte. Checkpoints and files of weights keep this text where only UTF-8 may
  // stand.
  return EscapedUtf8(text);
}

void WriteConfig(const config::Config& config, const std::string& path) {
  WriteFileAtomically(path,
                      "# Written by muster launch; launching from this file repeats the run.\n" +
                          ConfigText(config));
}

}  // namespace muster
