// What the (limits) of config.proto say of a setting: the values that it may have, and the settings
// without which it has no effect.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "common/config/config_errors.h"
#include "proto/config.pb.h"
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

// What the field of `message` needs and does not have in this config, as config.proto says it:
// "run.on_nonfinite=SKIP_STEP". "" if nothing is missing.
std::string UnmetNeed(const config::Config& config, const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

// A line for each: "run.max_skipped_steps=3: needs run.on_nonfinite=SKIP_STEP". A setting with its
// default's value is none of them: a written config spells defaults out.
std::vector<std::string> WithoutEffect(const config::Config& config);

}  // namespace muster
