// The names of settings in a text: what text_format.cc needs besides protobuf's parser, whose
// complaints give a place, but not the setting there.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace muster {

struct Name {
  std::string path;   // "optimizer.momentum", without indices
  std::string value;  // what follows the colon, if that is no message
  // As the parser counts: from 0, a tab up to the next multiple of 8. -1: there is none.
  int line = -1, column = 0;
  size_t offset = 0, value_offset = 0;  // of both in the text
};

// Calls visit(name) for each name of the text until that returns false.
void VisitNames(const std::string& text, const std::function<bool(const Name&)>& visit);

// The last name before a place.
Name NameBefore(const std::string& text, int line, int column);

// Both ends of a text: a mistake may quote a whole file without a space in it.
std::string Shorten(const std::string& text);

}  // namespace muster
