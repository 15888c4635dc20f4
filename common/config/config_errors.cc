#include "common/config/config_errors.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

// Turns model.layer[2].name into model.layer.name, because the text reader does not count elements.
std::string WithoutIndices(const std::string& key) {
  std::string result;
  bool inside = false;
  for (const char c : key) {
    if (c == '[') inside = true;
    if (!inside) result += c;
    if (c == ']') inside = false;
  }
  return result;
}

bool IsWithin(const std::string& key, const std::string& outer) {
  return key.starts_with(outer) && (key.size() == outer.size() || key[outer.size()] == '.');
}

}  // namespace

std::string ConfigErrors::Where(std::string key) const {
  // In a file, a list begins at its first element.
  const auto first = locations.find(key + "[0]");
  if (first != locations.end() && !locations.contains(key)) return first->second;
  while (!key.empty()) {
    const auto found = locations.find(key);
    if (found != locations.end()) return found->second;
    const size_t cut = key.find_last_of(".[");
    key.resize(cut == std::string::npos ? 0 : cut);
  }
  return file_;
}

void ConfigErrors::Add(const std::string& key, const std::string& line) {
  ++noted_;
  if (MayFollow(WithoutIndices(key))) return;
  const std::string shown = Shown(line);
  if (std::ranges::find(lines_, shown) == lines_.end()) lines_.push_back(shown);
}

void ConfigErrors::AddUnread(const std::string& key, const std::string& line) {
  ++noted_;
  lines_.push_back(Shown(line));
  constexpr std::string_view kResolved = "resolved.";
  const size_t from = key.starts_with(kResolved) ? kResolved.size() : 0;
  if (!key.empty()) unread_.push_back(WithoutIndices(key.substr(from)));
}

void ConfigErrors::ThrowIfAny() const {
  if (lines_.empty()) return;
  if (lines_.size() == 1) throw Error(ExitCode::kUsage, lines_[0]);
  throw Error(ExitCode::kUsage, "{} mistakes:\n  {}", lines_.size(), Join(lines_, "\n  "));
}

bool ConfigErrors::MayFollow(const std::string& key) const {
  return std::any_of(unread_.begin(), unread_.end(), [&](const std::string& unread) {
    if (IsWithin(key, unread) || IsWithin(unread, key)) return true;
    // Settings within one message depend on each other. Settings of different layers or messages do
    // not.
    const size_t dot = unread.rfind('.');
    const std::string message = dot == std::string::npos ? "" : unread.substr(0, dot);
    return !message.empty() && message != "model.layer" && IsWithin(key, message);
  });
}

}  // namespace muster
