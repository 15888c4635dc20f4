// Text from anywhere (file names, other hosts) for where only UTF-8 may stand.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// `text` with U+FFFD for each byte that is not part of a UTF-8 character (RFC 3629).
std::string ValidUtf8(std::string_view text);

// One line for a terminal: control characters and what is no UTF-8 replaced, cut to `most` bytes.
std::string OneLine(std::string_view text, size_t most);

}  // namespace muster
