// Protobuf text format with errors that a person can act on: one line with file, line, key, what
// was expected, what is there, and the nearest known name.
#pragma once

#include <google/protobuf/message.h>

#include <map>
#include <string>
#include <vector>

#include "common/config/config_errors.h"

namespace muster {

// Where each setting came from: "run.epochs" → "configs/cifar10.txtpb:7". A repeated field has an
// entry per element: "model.layer[2].name".
using Locations = std::map<std::string, std::string>;

// Brackets within one another: the parser's own limit is more than a stack has room for, also in
// what it passes over.
constexpr int kMostTextNesting = 32;

// Parses the text of `file` into `message`, whose place in the config is `prefix` ("" for the
// whole config, "model" for an included model), and notes where each field was. Fields that cannot
// be read are left out and noted in `errors`. Throws Error(kUsage) if nothing more can be read.
void ParseTextFile(const std::string& file, const std::string& prefix,
                   google::protobuf::Message& message, Locations& locations, ConfigErrors& errors);

// The same of a text that is no file's; `origin` stands for the file's name.
void ParseText(const std::string& text, const std::string& origin, const std::string& prefix,
               google::protobuf::Message& message, Locations& locations, ConfigErrors& errors);
// Throws every error.
void ParseText(const std::string& text, const std::string& origin, const std::string& prefix,
               google::protobuf::Message& message, Locations& locations);

}  // namespace muster
