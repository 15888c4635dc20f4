// Parses protobuf text format and reports errors that a user can act on: one line with file, line,
// key, expected value, actual value, and the nearest known name.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>

#include "common/config/config.h"
#include "common/config/config_errors.h"
#include "proto/config_fwd.h"

namespace muster {

// Parses the text of `file` into `message`. `prefix` is the message's path in the config: "" for
// the whole config, "model" for an included model. Records in `errors` the location of each field,
// and the unreadable fields, which are skipped. Returns the text. Throws Error(kUsage) if the rest
// is unreadable.
std::string ParseTextFile(const std::string& file, const std::string& prefix,
                          google::protobuf::Message& message, ConfigErrors& errors);

// The same for a text that is not from a file. `place` formats the location of a line, counted from
// 0.
using PlaceOfLine = std::function<std::string(int line)>;
void ParseText(const std::string& text, const PlaceOfLine& place, const std::string& prefix,
               google::protobuf::Message& message, ConfigErrors& errors);

// The same, but throws all mistakes in one error. `origin` takes the place of the file name.
void ParseText(const std::string& text, const std::string& origin, const std::string& prefix,
               google::protobuf::Message& message);

// Sets a scalar field, or adds an element to a list of them. Names of enum values may be in upper
// or lower case. Returns false if the text is no value of this field.
bool SetScalar(google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field,
               const std::string& text);

// Sets one field from text: "run.epochs", "model.layer[2].dropout.rate", "model.layer[conv1].…" (an
// element found by its name). Values are in text format. Strings need no quotes, enum values may be
// in upper or lower case, lists are written [3, 3], and messages { key: value }. Replaces the
// previous value and any other member of the same oneof. Records mistakes with the setting's
// origin.
void SetField(config::Config& config, const Setting& setting, ConfigErrors& errors);

}  // namespace muster
