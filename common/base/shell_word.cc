#include "common/base/shell_word.h"

#include <algorithm>
#include <string_view>

namespace muster {
namespace {

bool IsPlain(char c) {
  constexpr std::string_view kMarks = "_-+=./,:@%";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kMarks.find(c) != std::string_view::npos;
}

}  // namespace

std::string ShellWord(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, IsPlain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace muster
