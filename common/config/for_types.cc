#include "common/config/for_types.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "proto/config.pb.h"

namespace muster {

namespace pb = google::protobuf;

std::vector<std::string> TypesOf(const pb::FieldDescriptor& field) {
  std::istringstream words(field.options().GetExtension(config::limits).for_types());
  std::vector<std::string> types;
  for (std::string word; words >> word;) types.push_back(word);
  return types;
}

std::string TypeName(const pb::Message& message) {
  const pb::FieldDescriptor* type = message.GetDescriptor()->FindFieldByName("type");
  if (type == nullptr || type->cpp_type() != pb::FieldDescriptor::CPPTYPE_ENUM) return "";
  return message.GetReflection()->GetEnum(message, type)->name();
}

bool IsForType(const pb::Message& message, const pb::FieldDescriptor& field) {
  const std::vector<std::string> types = TypesOf(field);
  return types.empty() || std::find(types.begin(), types.end(), TypeName(message)) != types.end();
}

void ClearForeign(pb::Message& message, const std::string& path, const MayClear& may_clear) {
  const pb::Reflection* reflection = message.GetReflection();
  std::vector<const pb::FieldDescriptor*> set;
  reflection->ListFields(message, &set);
  for (const pb::FieldDescriptor* field : set) {
    const std::string key = path + field->name();
    if (!IsForType(message, *field)) {
      if (may_clear(key, path + "type")) reflection->ClearField(&message, field);
    } else if (field->message_type() == nullptr) {
      continue;
    } else if (!field->is_repeated()) {
      ClearForeign(*reflection->MutableMessage(&message, field), key + ".", may_clear);
    } else {
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
        ClearForeign(*reflection->MutableRepeatedMessage(&message, field, i),
                     fmt::format("{}[{}].", key, i), may_clear);
      }
    }
  }
}

}  // namespace muster
