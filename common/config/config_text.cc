// A config as text: what a run directory keeps, and files of weights.
#include <google/protobuf/text_format.h>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/utf8.h"
#include "common/config/config.h"
#include "common/config/for_types.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

// Spells out the default of every plain field of the messages that are there.
void SpellOutDefaults(pb::Message& message) {
  const pb::Descriptor* type = message.GetDescriptor();
  const pb::Reflection* r = message.GetReflection();
  for (int f = 0; f < type->field_count(); ++f) {
    const pb::FieldDescriptor* field = type->field(f);
    if (field->message_type() != nullptr) {
      if (field->is_repeated()) {
        for (int i = 0; i < r->FieldSize(message, field); ++i) {
          SpellOutDefaults(*r->MutableRepeatedMessage(&message, field, i));
        }
      } else if (r->HasField(message, field)) {
        SpellOutDefaults(*r->MutableMessage(&message, field));
      }
      continue;
    }
    if (field->is_repeated() || r->HasField(message, field) || !field->has_default_value())
      continue;
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

// Defaults that would contradict another setting if they were spelled out.
void DropMeaningless(config::Config& config, const config::Config& original) {
  ClearForeign(config, "", [](const std::string&, const std::string&) { return true; });
  for (int i = 0; i < config.model().layer_size(); ++i) {
    config::Layer& layer = *config.mutable_model()->mutable_layer(i);
    const config::Layer& as_given = original.model().layer(i);
    if (layer.has_conv2d() && !as_given.conv2d().has_pad()) layer.mutable_conv2d()->clear_pad();
    if (layer.has_max_pool() && !as_given.max_pool().has_pad())
      layer.mutable_max_pool()->clear_pad();
    if (layer.has_avg_pool() && !as_given.avg_pool().has_pad())
      layer.mutable_avg_pool()->clear_pad();
  }
}

}  // namespace

std::string ConfigText(const config::Config& config) {
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
  SpellOutDefaults(full);
  DropMeaningless(full, config);
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
