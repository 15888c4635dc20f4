#include "common/base/utf8.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace muster {
namespace {

// Bytes of the character that `text` begins with; 0 if that is none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Longer than need be, a surrogate, or beyond the last character.
  const bool wrong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
                     (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90);
  return wrong ? 0 : length;
}

// `text` with `replaced(byte)` in place of each byte that is not part of a character.
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
  size_t cut = 0;  // where a text that is too long ends
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
  if (line.size() > most) line = line.substr(0, most > 3 ? most - 3 : 0) + "...";
  return ValidUtf8(line);
}

}  // namespace muster
