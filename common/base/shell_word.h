#pragma once

#include <string>

namespace muster {

// A word of a command line, quoted if a shell would take it for something else.
std::string ShellWord(const std::string& word);

}  // namespace muster
