#include "launch/text/wrapped.h"

#include <algorithm>

namespace muster {

std::vector<std::string> Wrapped(const std::string& text, int width) {
  const auto most = static_cast<size_t>(std::max(1, width));
  std::vector<std::string> lines;
  size_t at = 0;
  do {
    size_t end = std::min(text.size(), at + most);
    if (end < text.size()) {
      const size_t space = text.rfind(' ', end);
      if (space != std::string::npos && space > at) end = space;
    }
    lines.push_back(text.substr(at, end - at));
    at = end < text.size() && text[end] == ' ' ? end + 1 : end;
  } while (at < text.size());
  return lines;
}

}  // namespace muster
