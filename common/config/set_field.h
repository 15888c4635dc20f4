// `--set path.to.key=value`: one field of a config.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "common/config/text_format.h"

namespace muster {

// Sets one field from text: "run.epochs", "model.layer[2].dropout.rate", "model.layer[conv1].…"
// (an element found by its name). A value is what text format allows; strings need no quotes,
// lists are written [3, 3], messages { key: value }. What was there is replaced, and so is another
// member of the same oneof. Throws Error(kUsage) that starts with `origin`.
void SetField(google::protobuf::Message& config, const std::string& path, const std::string& value,
              const std::string& origin, Locations& locations);

}  // namespace muster
