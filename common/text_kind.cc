#include "common/text_kind.h"

#include <regex>

#include "common/error.h"

namespace muster {
namespace {

constexpr const char* kExpected =
    "expected protobuf text format, as in configs/*.txtpb: run { epochs: 10 global_batch: 128 }";

// The first line that is neither empty nor a comment.
std::string FirstLine(const std::string& text) {
  static const std::regex kLine(R"((^|\n)[ \t\r]*([^#\s][^\n]*))");
  std::smatch match;
  // A line that goes on for ever is no config's, and costs a regular expression its stack.
  const std::string start = text.substr(0, 4096);
  return std::regex_search(start, match, kLine) ? match[2].str() : "";
}

}  // namespace

void RequireText(const std::string& file, std::string& text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw Error(ExitCode::kUsage, "{}: is UTF-16 text: save it as UTF-8; {}", file, kExpected);
  }
  if (text.find('\0') != std::string::npos) {
    throw Error(ExitCode::kUsage, "{}: is no text, it has zero bytes; {}", file, kExpected);
  }
}

std::string ForeignLanguage(const std::string& text) {
  const std::string line = FirstLine(text);
  const char* language = nullptr;
  if (line.starts_with('{') || std::regex_search(line, std::regex(R"(^\[\s*(\{|"|$))"))) {
    language = "JSON";
  } else if (std::regex_search(line, std::regex(R"(^\[[\w.]+\]\s*$|^\w+\s*=)"))) {
    language = "TOML";
  } else if (line.starts_with("---") || line.starts_with("- ") ||
             std::regex_search(line, std::regex(R"(^\w+:\s*$)"))) {
    language = "YAML";
  }
  return language == nullptr ? "" : fmt::format("looks like {}: {}", language, kExpected);
}

}  // namespace muster
