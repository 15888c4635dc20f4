// Settings that are given but change nothing because of other settings: a number of skipped steps
// where none is skipped. What a setting needs is in its (limits) in config.proto.
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {

// What the field of `message` needs and does not have in this config, as config.proto says it:
// "run.on_nonfinite=SKIP_STEP". "" if nothing is missing.
std::string UnmetNeed(const config::Config& config, const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

// A line for each: "run.max_skipped_steps=3: needs run.on_nonfinite=SKIP_STEP". A setting with its
// default's value is none of them: a written config spells defaults out.
std::vector<std::string> WithoutEffect(const config::Config& config);

}  // namespace muster
