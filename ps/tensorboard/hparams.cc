#include "ps/tensorboard/hparams.h"

#include <google/protobuf/message.h>

#include <vector>

#include "common/base/utf8.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Hparams = google::protobuf::Map<std::string, google::protobuf::Value>;

google::protobuf::Value ValueOf(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  google::protobuf::Value value;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      value.set_bool_value(reflection.GetBool(message, &field));
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      value.set_number_value(reflection.GetDouble(message, &field));
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      value.set_number_value(reflection.GetFloat(message, &field));
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      value.set_number_value(static_cast<double>(reflection.GetInt64(message, &field)));
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      value.set_number_value(static_cast<double>(reflection.GetUInt64(message, &field)));
      break;
    case FieldDescriptor::CPPTYPE_UINT32:
      value.set_number_value(reflection.GetUInt32(message, &field));
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      value.set_string_value(reflection.GetEnum(message, &field)->name());
      break;
    default:
      value.set_string_value(ValidUtf8(reflection.GetString(message, &field)));
  }
  return value;
}

// The settings of `message` that are single values and are set: defaults are by now. Messages in
// it are gone into.
void Put(const std::string& prefix, const Message& message, Hparams& hparams) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_repeated()) continue;
    const std::string name = prefix + "." + field->name();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Put(name, message.GetReflection()->GetMessage(message, field), hparams);
    } else {
      hparams[name] = ValueOf(message, *field);
    }
  }
}

}  // namespace

tensorboard::HparamsPluginData HparamsOf(const config::Config& config, const std::string& group,
                                         double unix_time) {
  tensorboard::HparamsPluginData data;
  tensorboard::SessionStart& start = *data.mutable_session_start_info();
  start.set_group_name(group);
  start.set_start_time_secs(unix_time);
  Hparams& hparams = *start.mutable_hparams();
  hparams["model"].set_string_value(config.model().name());
  Put("optimizer", config.optimizer(), hparams);
  Put("learning_rate", config.learning_rate(), hparams);
  Put("preprocess", config.data().preprocess(), hparams);
  config::Run run = config.run();
  run.clear_dir();  // the run's name says it, and files have no part in the result
  run.clear_trace_file();
  run.clear_trace_first_step();
  run.clear_trace_steps();
  Put("run", run, hparams);
  hparams["cluster.wire_dtype"].set_string_value(
      config::Cluster::WireDtype_Name(config.cluster().wire_dtype()));
  return data;
}

tensorboard::HparamsPluginData HparamsEnd(bool completed, double unix_time) {
  tensorboard::HparamsPluginData data;
  data.mutable_session_end_info()->set_status(completed ? tensorboard::SessionEnd::STATUS_SUCCESS
                                                        : tensorboard::SessionEnd::STATUS_FAILURE);
  data.mutable_session_end_info()->set_end_time_secs(unix_time);
  return data;
}

}  // namespace muster
