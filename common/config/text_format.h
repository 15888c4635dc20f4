// Protobuf text format with errors that a person can act on: one line with file, line, key, what
// was expected, what is there, and the nearest known name.
#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <string>
#include <vector>

namespace muster {

// Where each setting came from: "run.epochs" → "configs/cifar10.txtpb:7". A repeated field has an
// entry per element: "model.layer[2].name".
using Locations = std::map<std::string, std::string>;

// Parses the text of `file` into `message`, whose place in the config is `prefix` ("" for the
// whole config, "model" for an included model), and notes where each field was. Throws
// Error(kUsage).
void ParseTextFile(const std::string& file, const std::string& prefix,
                   google::protobuf::Message& message, Locations& locations);

// The same of a text that is no file's; `origin` stands for the file's name.
void ParseText(const std::string& text, const std::string& origin, const std::string& prefix,
               google::protobuf::Message& message, Locations& locations);

// Sets one field from text: "run.epochs", "model.layer[2].dropout.rate", "model.layer[conv1].…"
// (an element found by its name). A value is what text format allows; strings need no quotes,
// lists are written [3, 3], messages { key: value }. What was there is replaced, and so is another
// member of the same oneof. Throws Error(kUsage) that starts with `origin`.
void SetField(google::protobuf::Message& config, const std::string& path, const std::string& value,
              const std::string& origin, Locations& locations);

// The one of `candidates` that `name` most likely means, or "" if none is near.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace muster
