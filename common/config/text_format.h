// Protobuf text format with errors that a person can act on: one line with file, line, key, what
// was expected, what is there, and the nearest known name.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <functional>
#include <string>

#include "common/config/config.h"
#include "common/config/config_errors.h"
#include "proto/config_fwd.h"

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

// The name of a setting in a text. The complaints of the parser give a place alone.
struct SettingName {
  std::string path;   // "optimizer.momentum", without indices
  std::string value;  // what follows the colon, if that is no message
  // As the parser counts: from 0, a tab up to the next multiple of 8. -1: there is none.
  int line = -1, column = 0;
  size_t offset = 0, value_offset = 0;  // of both in the text
};

// Calls visit(name) for each name of the text until that returns false.
void VisitNames(const std::string& text, const std::function<bool(const SettingName&)>& visit);

// The last name before a place.
SettingName NameBefore(const std::string& text, int line, int column);

// Both ends of a text: a mistake may quote a whole file without a space in it.
std::string Shorten(const std::string& text);

// Sets one field from text: "run.epochs", "model.layer[2].dropout.rate", "model.layer[conv1].…"
// (an element found by its name). A value is what text format allows; strings need no quotes,
// values of an enum may be in any case, lists are written [3, 3], messages { key: value }. What was
// there is replaced, and so is another member of the same oneof. Mistakes are noted with the
// setting's origin.
void SetField(config::Config& config, const Setting& setting, ConfigErrors& errors);

}  // namespace muster
