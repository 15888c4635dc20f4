// The elements of a range in one text. fmt::join can more, and takes seconds to compile.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace muster {

// "a, b, c": of strings or whole numbers.
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

}  // namespace muster
