// Text utilities: joining, quoting, searching, parsing numbers, and sanitizing text from outside
// (file names, other hosts) for a terminal or a log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace muster {

// Joins strings or integers: "a, b, c". fmt::join is more general but takes seconds to compile.
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

// Returns a command line word, quoted if a shell would interpret it.
std::string ShellWord(const std::string& word);

// The words of a command line, in which quotes and \ work as in a shell. Empty if a quote is not
// closed.
std::optional<std::vector<std::string>> SplitCommandLine(const std::string& text);

// The first, longest match of `pattern`, a POSIX extended regular expression, in `text`: the whole
// match, then each group, "" for a group that did not participate. Empty if there is no match. Uses
// the C library, because std::regex takes seconds to compile wherever it is used.
std::vector<std::string> FirstMatch(const char* pattern, const std::string& text);

std::string FormatCount(int64_t value);  // 1,068,298

// Parses a list such as "0-9,17". Keeps the given order and drops duplicates. `what` names the list
// in errors ("--samples"). Throws Error(kUsage) if the list is invalid or contains a number that is
// not below `end`.
std::vector<int64_t> ParseNumberList(const std::string& what, const std::string& text, int64_t end);

// Truncates an untrusted number; empty if int64_t cannot hold it (the cast would be undefined).
std::optional<int64_t> WholeNumberOf(double value);

// The number of leading bytes of `text` that are valid UTF-8 (RFC 3629); text.size() if all are.
size_t Utf8Prefix(std::string_view text);

// `text` with an escape such as \351 for each byte (here 0xe9) that is not part of a UTF-8
// character. Protobuf's text format reads it back within quotes.
std::string EscapedUtf8(std::string_view text);

// `text` with U+FFFD for each byte that is not part of a UTF-8 character.
std::string ValidUtf8(std::string_view text);

// The maximum length of a line in errors and logs, in bytes. A config can contain 100,000 numbers.
inline constexpr size_t kMostShown = 2000;

// `text` made safe for a terminal or a log: control characters as \n or \x1b, invalid UTF-8 as
// \xe9. Longer text is cut to `most` bytes and ends with "... (N more characters)". Idempotent.
std::string Shown(std::string_view text, size_t most = kMostShown);

// The same for each line of `text`. A newline followed by two spaces is kept as one of our own line
// breaks. Any other newline comes from a name or a value and is shown as \n.
std::string ShownLines(std::string_view text, size_t most = kMostShown);

// `text` as one line for a terminal: control characters and invalid UTF-8 are replaced, and the
// line is cut to `most` bytes.
std::string OneLine(std::string_view text, size_t most);

// Text from another host, made safe for a log line or a terminal. Everything except printable ASCII
// becomes '?', and the text is cut to `most` characters.
std::string Printable(std::string_view words, size_t most = 500);

}  // namespace muster
