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

// What a line of an error or of a log may be at most, in bytes: a config can hold 100,000 numbers.
inline constexpr size_t kMostShown = 2000;

// `text` as it may go to a terminal or into a log: control characters as \n or \x1b, bytes that are
// not UTF-8 as \xe9. What is longer than `most` ends with "... (N more characters)". What is shown
// once stays the same when it is shown again.
std::string Shown(std::string_view text, size_t most = kMostShown);

// The same for each line of `text`. A line after the first is one of ours if it is indented by two
// spaces; any other newline came with a name or a value, and is shown as \n.
std::string ShownLines(std::string_view text, size_t most = kMostShown);

// One line for a terminal: control characters and what is no UTF-8 replaced, cut to `most` bytes.
std::string OneLine(std::string_view text, size_t most);

}  // namespace muster
