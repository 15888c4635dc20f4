// Parses JSON that may come from other programs, and writes JSON. nlohmann's parser and serializer
// take seconds to compile, so only json.cc uses them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace muster {

// The nesting limit. It exceeds the nesting of our own files but protects the stack: JSON trees are
// parsed without recursion but copied, compared and printed recursively.
constexpr int kMostJsonNesting = 100;

// Return a discarded value (`is_discarded()`) if the text is invalid JSON or nested too deeply.
// Never throw.
nlohmann::json ParseJson(std::string_view text, int most_nesting = kMostJsonNesting);
nlohmann::ordered_json ParseOrderedJson(std::string_view text, int most_nesting = kMostJsonNesting);

// Tells `reader` what the text contains, until one of its functions returns false or throws.
void ReadJson(std::string_view text, nlohmann::json_sax<nlohmann::json>& reader);

// On one line if `indent` is negative. Invalid UTF-8 becomes U+FFFD.
std::string JsonText(const nlohmann::json& json, int indent = -1);
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace muster
