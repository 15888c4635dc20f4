// Evaluates the (limits) of config.proto: the values that a setting may have, and the conditions
// under which it has an effect.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "common/config/config_errors.h"
#include "proto/config.pb.h"
#include "proto/config_fwd.h"

namespace muster {

// Records each setting that is missing or out of range.
void CheckRanges(const config::Config& config, ConfigErrors& errors);

// Ignores case. Returns null if there is no such value.
const google::protobuf::EnumValueDescriptor* FindEnumValue(
    const google::protobuf::EnumDescriptor& type, std::string name);

// The message for a value that the field does not accept: "expected a whole number, at least 1 and
// at most 1024 (processes), got two".
std::string WrongValue(const google::protobuf::FieldDescriptor& field, const std::string& value);

// The first unmet `needs` condition of a field of `message` in this config, as written in
// config.proto: "run.on_nonfinite=SKIP_STEP". Returns "" if all are met.
std::string UnmetNeed(const config::Config& config, const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

// Returns one line per setting without effect: "run.max_skipped_steps=3: needs
// run.on_nonfinite=SKIP_STEP". Settings at their default are skipped, because written configs spell
// out defaults.
std::vector<std::string> WithoutEffect(const config::Config& config);

}  // namespace muster
