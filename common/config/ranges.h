// The values that a setting may have, from its type and its (limits) in config.proto.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

#include "common/config/config_errors.h"
#include "proto/config_fwd.h"

namespace muster {

// Notes each setting that is missing or not within its limits.
void CheckRanges(const config::Config& config, ConfigErrors& errors);

// In any case; null if there is none.
const google::protobuf::EnumValueDescriptor* FindEnumValue(
    const google::protobuf::EnumDescriptor& type, std::string name);

// What to say of a text that is no value of the field: "expected a whole number, at least 1 and at
// most 1024 (processes), got two".
std::string WrongValue(const google::protobuf::FieldDescriptor& field, const std::string& value);

}  // namespace muster
