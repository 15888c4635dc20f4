#include "common/base/json.h"

namespace muster {
namespace {

// Whether brackets outside strings are nested deeper than `most`. `text` may be invalid JSON.
bool IsNestedDeeper(std::string_view text, int most) {
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

template <typename Json>
Json Parse(std::string_view text, int most_nesting) {
  if (IsNestedDeeper(text, most_nesting)) return Json(nlohmann::detail::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

template <typename Json>
std::string Text(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::json ParseJson(std::string_view text, int most_nesting) {
  return Parse<nlohmann::json>(text, most_nesting);
}

nlohmann::ordered_json ParseOrderedJson(std::string_view text, int most_nesting) {
  return Parse<nlohmann::ordered_json>(text, most_nesting);
}

void ReadJson(std::string_view text, nlohmann::json_sax<nlohmann::json>& reader) {
  (void)nlohmann::json::sax_parse(text, &reader);
}

std::string JsonText(const nlohmann::json& json, int indent) { return Text(json, indent); }

std::string JsonText(const nlohmann::ordered_json& json, int indent) { return Text(json, indent); }

}  // namespace muster
