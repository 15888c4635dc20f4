// Text from anywhere (file names, other hosts) for where only UTF-8 may stand.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

// How many bytes at the beginning of `text` are UTF-8 (RFC 3629): all, if it has that many.
size_t Utf8Prefix(std::string_view text);

// `text` with \351 in place of each byte that is not part of a UTF-8 character (here 0xe9), as
// protobuf's text format reads it back within quotes.
std::string EscapedUtf8(std::string_view text);

// `text` with U+FFFD for each byte that is not part of a UTF-8 character.
std::string ValidUtf8(std::string_view text);

// One line for a terminal: control characters and what is no UTF-8 replaced, cut to `most` bytes.
std::string OneLine(std::string_view text, size_t most);

}  // namespace muster
