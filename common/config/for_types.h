// Settings that mean something for some types only: optimizer.beta1 is of ADAM and ADAMW. Which
// ones is said in the schema, by the for_types option of Limits (proto/config.proto).
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>
#include <vector>

namespace muster {

// The types that `field` is for. Empty: all.
std::vector<std::string> TypesOf(const google::protobuf::FieldDescriptor& field);

// The name of the message's `type`, the default if it is not set. "" if it has no such field.
std::string TypeName(const google::protobuf::Message& message);

// Whether `field` means something in `message`, given its type.
bool IsForType(const google::protobuf::Message& message,
               const google::protobuf::FieldDescriptor& field);

// Clears, in `message` and all messages below it, every field that means nothing for its message's
// type and of which `may_clear` says so. `key` is the field's path, "optimizer.momentum", and
// `type_key` that of the type, "optimizer.type".
using MayClear = std::function<bool(const std::string& key, const std::string& type_key)>;
void ClearForeign(google::protobuf::Message& message, const std::string& path,
                  const MayClear& may_clear);

}  // namespace muster
