#include "common/base/text.h"

#include <fmt/core.h>
#include <regex.h>

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "common/base/error.h"
#include "common/base/leading_zero.h"

namespace muster {
namespace {

bool IsPlain(char c) {
  constexpr std::string_view kMarks = "_-+=./,:@%";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kMarks.find(c) != std::string_view::npos;
}

bool ParseNumber(std::string_view text, int64_t& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0;
}

// The byte length of the first character of `text`; 0 if it is invalid.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong, a surrogate, or beyond the last code point.
  const bool wrong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
                     (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90);
  return wrong ? 0 : length;
}

// Replaces each byte of `text` that is not part of a valid character with `replaced(byte)`.
template <typename Replaced>
std::string Replace(std::string_view text, const Replaced& replaced) {
  std::string valid;
  valid.reserve(text.size());
  for (;;) {
    const size_t good = Utf8Prefix(text);
    valid += text.substr(0, good);
    if (good == text.size()) return valid;
    valid += replaced(static_cast<uint8_t>(text[good]));
    text.remove_prefix(good + 1);
  }
}

}  // namespace

std::string ShellWord(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, IsPlain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::optional<std::vector<std::string>> SplitCommandLine(const std::string& text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else {
      if (c == '\\' && quote != '\'' && i + 1 < text.size()) c = text[++i];
      words.back() += c;
    }
  }
  if (quote != 0) return std::nullopt;
  return words;
}

std::vector<std::string> FirstMatch(const char* pattern, const std::string& text) {
  regex_t compiled;
  MUSTER_CHECK(::regcomp(&compiled, pattern, REG_EXTENDED) == 0);
  std::vector<regmatch_t> places(compiled.re_nsub + 1);
  const bool found = ::regexec(&compiled, text.c_str(), places.size(), places.data(), 0) == 0;
  ::regfree(&compiled);
  std::vector<std::string> parts;
  if (!found) return parts;
  for (const regmatch_t& place : places) {
    parts.push_back(place.rm_so < 0 ? "" : text.substr(place.rm_so, place.rm_eo - place.rm_so));
  }
  return parts;
}

std::string FormatCount(int64_t value) {
  std::string digits = std::to_string(value);
  int first = value < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3)
    digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::vector<int64_t> ParseNumberList(const std::string& what, const std::string& text,
                                     int64_t end) {
  std::vector<int64_t> numbers;
  std::unordered_set<int64_t> seen;
  for (size_t at = 0; at <= text.size();) {
    const size_t stop = std::min(text.find(',', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, stop - at);
    at = stop + 1;
    const size_t dash = part.find('-');
    const std::string_view from = part.substr(0, dash);
    const std::string_view to = dash == part.npos ? part : part.substr(dash + 1);
    int64_t first = 0, last = 0;
    if (HasLeadingZero(from) || HasLeadingZero(to)) {
      throw Error(ExitCode::kUsage, "{} {}: got '{}': {}", what, text, part, kLeadingZero);
    }
    if (!ParseNumber(from, first) || !ParseNumber(to, last) || last < first) {
      throw Error(ExitCode::kUsage, "{} {}: expected numbers and ranges, as in 0-9,17, got '{}'",
                  what, text, part);
    }
    if (last >= end) {
      throw Error(ExitCode::kUsage, "{} {}: expected numbers from 0 to {}, got {}", what, text,
                  FormatCount(end - 1), FormatCount(last));
    }
    for (int64_t number = first; number <= last; ++number) {
      if (seen.insert(number).second) numbers.push_back(number);
    }
  }
  return numbers;
}

std::optional<int64_t> WholeNumberOf(double value) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (!(value >= -kEnd && value < kEnd)) return std::nullopt;
  return static_cast<int64_t>(value);
}

size_t Utf8Prefix(std::string_view text) {
  size_t good = 0;
  while (good < text.size()) {
    const size_t length = CharacterLength(text.substr(good));
    if (length == 0) break;
    good += length;
  }
  return good;
}

std::string EscapedUtf8(std::string_view text) {
  return Replace(text, [](uint8_t byte) { return fmt::format("\\{:03o}", byte); });
}

std::string ValidUtf8(std::string_view text) {
  return Replace(text, [](uint8_t) { return "\xef\xbf\xbd"; });
}

std::string Shown(std::string_view text, size_t most) {
  constexpr size_t kRoomForCount = 40;
  std::string shown;
  size_t cut = 0;  // the end of a truncated text
  for (size_t i = 0; i < text.size();) {
    const size_t length = CharacterLength(text.substr(i));
    const auto byte = static_cast<uint8_t>(text[i]);
    const bool is_c1 = length == 2 && byte == 0xc2 && static_cast<uint8_t>(text[i + 1]) < 0xa0;
    if (byte == '\n' || byte == '\t' || byte == '\r') {
      shown += byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : "\\r";
    } else if (length == 0 || byte < 0x20 || byte == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
    } else if (is_c1) {
      shown += fmt::format("\\u{:04x}", static_cast<uint8_t>(text[i + 1]));
    } else {
      shown += text.substr(i, length);
    }
    i += std::max<size_t>(length, 1);
    if (shown.size() + kRoomForCount <= most) cut = shown.size();
  }
  if (shown.size() <= most) return shown;
  return fmt::format("{}... ({} more characters)", shown.substr(0, cut), shown.size() - cut);
}

std::string ShownLines(std::string_view text, size_t most) {
  std::string lines;
  for (;;) {
    size_t end = text.find("\n  ");
    if (end == text.npos && text.ends_with('\n')) end = text.size() - 1;
    lines += Shown(text.substr(0, end), most);
    if (end == text.npos) return lines;
    lines += '\n';
    text.remove_prefix(end + 1);
    if (text.empty()) return lines;
  }
}

std::string OneLine(std::string_view text, size_t most) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool wide = byte == 0xc2 && 0x80 <= next && next <= 0x9f;  // U+0080 … U+009F
    line += byte < 0x20 || byte == 0x7f || wide ? ' ' : text[i];
    if (wide) ++i;
  }
  line = ValidUtf8(line);
  if (line.size() <= most) return line;
  size_t cut = most > 3 ? most - 3 : 0;
  while (cut > 0 && (static_cast<uint8_t>(line[cut]) & 0xc0) == 0x80) --cut;  // within a character
  return line.substr(0, cut) + "...";
}

std::string Printable(std::string_view words, size_t most) {
  std::string line(words.substr(0, most));
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return words.size() > most ? line + " …" : line;
}

}  // namespace muster
