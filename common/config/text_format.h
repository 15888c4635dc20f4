// Parses protobuf text format and reports errors that a user can act on: one line with file, line,
// key, expected value, actual value, and the nearest known name.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/config_errors.h"
#include "proto/config_fwd.h"

namespace muster {

// The maximum nesting of brackets. The parser's own limit would overflow the stack.
constexpr int kMostTextNesting = 32;

// Parses the text of `file` into `message`. `prefix` is the message's path in the config: "" for
// the whole config, "model" for an included model. Records in `errors` the location of each field,
// and the unreadable fields, which are skipped. Throws Error(kUsage) if the rest is unreadable.
void ParseTextFile(const std::string& file, const std::string& prefix,
                   google::protobuf::Message& message, ConfigErrors& errors);

// The same for a text that is not from a file. `place` formats the location of a line, counted from
// 0.
using PlaceOfLine = std::function<std::string(int line)>;
void ParseText(const std::string& text, const PlaceOfLine& place, const std::string& prefix,
               google::protobuf::Message& message, ConfigErrors& errors);

// The same, but throws all mistakes in one error. `origin` takes the place of the file name.
void ParseText(const std::string& text, const std::string& origin, const std::string& prefix,
               google::protobuf::Message& message);

// The name and position of a setting in a text. The parser's errors give only a position.
struct SettingName {
  std::string path;   // "optimizer.momentum", without indices
  std::string value;  // the text after the colon; "" for a message
  // Counted as in the parser: from 0; a tab advances to the next multiple of 8. -1: none.
  int line = -1, column = 0;
  size_t offset = 0, value_offset = 0;  // byte offsets of the name and the value
  std::vector<size_t> leading_zeros;    // byte offsets of the value's numbers such as 010
};

// Calls visit(name) for each name in the text until it returns false.
void VisitNames(const std::string& text, const std::function<bool(const SettingName&)>& visit);

// Returns the last name before a position.
SettingName NameBefore(const std::string& text, int line, int column);

// Keeps only both ends of a long text, because the parser may quote a whole file that has no
// spaces.
std::string Shorten(const std::string& text);

// Sets one field from text: "run.epochs", "model.layer[2].dropout.rate", "model.layer[conv1].…" (an
// element found by its name). Values are in text format. Strings need no quotes, enum values may be
// in upper or lower case, lists are written [3, 3], and messages { key: value }. Replaces the
// previous value and any other member of the same oneof. Records mistakes with the setting's
// origin.
void SetField(config::Config& config, const Setting& setting, ConfigErrors& errors);

}  // namespace muster
