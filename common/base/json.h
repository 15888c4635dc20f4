// Parses JSON that may come from other programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace muster {

// The nesting limit. It exceeds the nesting of our own files but protects the stack: JSON trees are
// parsed without recursion but copied, compared and printed recursively.
constexpr int kMostJsonNesting = 100;

// Whether brackets outside strings are nested deeper than `most`. `text` may be invalid JSON.
inline bool IsNestedDeeper(std::string_view text, int most) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > most) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// Returns a discarded value (`is_discarded()`) if the text is invalid JSON or nested too deeply.
// Never throws.
template <typename Json = nlohmann::json>
Json ParseJson(std::string_view text, int most_nesting = kMostJsonNesting) {
  if (IsNestedDeeper(text, most_nesting)) return Json(nlohmann::detail::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace muster
