// JSON that somebody else may have written.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace muster {

// More brackets within one another than anything of ours has, and fewer than a stack has room for:
// a tree is read without recursion, but copied, compared and printed with it.
constexpr int kMostJsonNesting = 100;

// Whether brackets, other than those in its strings, are nested deeper. `text` may be no JSON.
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

// Discarded (`is_discarded()`) where it is no JSON, or is nested too deeply. Throws nothing.
template <typename Json = nlohmann::json>
Json ParseJson(std::string_view text, int most_nesting = kMostJsonNesting) {
  if (IsNestedDeeper(text, most_nesting)) return Json(nlohmann::detail::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace muster
