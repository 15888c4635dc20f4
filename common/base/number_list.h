// Numbers as people list them: "0-9,17".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// The numbers in the order given, each once. `what` names the list in errors ("--samples"). Throws
// Error(kUsage) for what is no such list, and for a number that is not below `end`.
std::vector<int64_t> ParseNumberList(const std::string& what, const std::string& text, int64_t end);

}  // namespace muster
