// What a file that is no config looks like, so that an error can say it instead of quoting a
// parser.
#pragma once

#include <string>

namespace muster {

// Takes a byte-order mark of UTF-8 away, which some editors write. Throws Error(kUsage) for an
// empty file and for what is not text: UTF-16, other bytes that no text has.
void RequireText(const std::string& file, std::string& text);

// Of a text that could not be parsed: what to say if it is written in another language (JSON, YAML,
// TOML), or "".
std::string ForeignLanguage(const std::string& text);

}  // namespace muster
