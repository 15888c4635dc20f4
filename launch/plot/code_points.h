// UTF-8, letter by letter.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace muster {

// What is no UTF-8 becomes '?', and so does a control character.
std::vector<uint32_t> CodePoints(std::string_view text);

}  // namespace muster
