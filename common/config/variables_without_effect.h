// What of a layer's variables is set and changes nothing; a part of without_effect.h.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "common/config/without_effect.h"

namespace muster {

// Adds every such setting of a layer that describes a variable.
void AddVariablesWithoutEffect(const config::Model& model, std::vector<NoEffect>& all);

std::string ValueText(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor* field);
bool IsDefault(const google::protobuf::Message& message,
               const google::protobuf::FieldDescriptor* field);

}  // namespace muster
