// Protobuf text format with errors that a person can act on: one line with file, line, key, what
// was expected, what is there, and the nearest known name.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>

#include "common/config/config_errors.h"

namespace muster {

// Brackets within one another: the parser's own limit is more than a stack has room for, also in
// what it passes over.
constexpr int kMostTextNesting = 32;

// Parses the text of `file` into `message`, whose place in the config is `prefix` ("" for the
// whole config, "model" for an included model). Notes in `errors` where each field was, and fields
// that cannot be read, which are left out. Throws Error(kUsage) if nothing more can be read.
void ParseTextFile(const std::string& file, const std::string& prefix,
                   google::protobuf::Message& message, ConfigErrors& errors);

// The same of a text that is no file's. `place` names a line of it, counted from 0, in errors.
using PlaceOfLine = std::function<std::string(int line)>;
void ParseText(const std::string& text, const PlaceOfLine& place, const std::string& prefix,
               google::protobuf::Message& message, ConfigErrors& errors);

// Throws every error; `origin` stands for the file's name.
void ParseText(const std::string& text, const std::string& origin, const std::string& prefix,
               google::protobuf::Message& message);

}  // namespace muster
