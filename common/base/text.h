// Text: joining, quoting and searching it, numbers in it, and how text from elsewhere (file names,
// other hosts) is made fit for a terminal or a log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace muster {

// "a, b, c": of strings or whole numbers. fmt::join can more, and takes seconds to compile.
template <typename Range>
std::string Join(const Range& range, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const auto& element : range) {
    if (!first) text += separator;
    first = false;
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(element)>>) {
      text += std::to_string(element);
    } else {
      text += element;
    }
  }
  return text;
}

// A word of a command line, quoted if a shell would take it for something else.
std::string ShellWord(const std::string& word);

// The first place in `text` that `pattern`, a POSIX extended regular expression, matches (the
// longest match there): all of it, then each group, "" if it has no part in it. Empty: no match. It
// uses the C library, since std::regex takes seconds to compile wherever it is used.
std::vector<std::string> FirstMatch(const char* pattern, const std::string& text);

std::string FormatCount(int64_t value);  // 1,068,298

// Numbers as people list them, "0-9,17": in the order given, each once. `what` names the list in
// errors ("--samples"). Throws Error(kUsage) for what is no such list, and for a number that is not
// below `end`.
std::vector<int64_t> ParseNumberList(const std::string& what, const std::string& text, int64_t end);

// A number of somebody else's text, without its fraction; nothing for what no int64_t holds, where
// a cast would do anything.
std::optional<int64_t> WholeNumberOf(double value);

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

// Words of somebody else, fit for a line of a log or a terminal: ASCII without control characters
// (others become '?'), cut to 500.
std::string Printable(std::string_view words);

}  // namespace muster
