#include "common/config/text_kind.h"

#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/file_kind.h"
#include "common/base/pattern.h"

namespace muster {
namespace {

constexpr const char* kExpected =
    "expected protobuf text format, as in configs/*.txtpb: run { epochs: 10 global_batch: 128 }";

// The first line that is neither empty nor a comment.
std::string FirstLine(const std::string& text) {
  // A line that goes on for ever is no config's.
  const std::vector<std::string> match =
      Search("(^|\n)[ \t\r]*([^#[:space:]][^\n]*)", text.substr(0, 4096));
  return match.empty() ? "" : match[2];
}

bool Matches(const char* pattern, const std::string& line) {
  return !Search(pattern, line).empty();
}

}  // namespace

void RequireText(const std::string& file, std::string& text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (text.empty()) throw Error(ExitCode::kUsage, "{}: the file is empty; {}", file, kExpected);
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw Error(ExitCode::kUsage, "{}: is UTF-16 text: save it as UTF-8; {}", file, kExpected);
  }
  const FileKind kind = KindOfFile(text);
  if (kind == FileKind::kSafetensors) {
    throw Error(
        ExitCode::kUsage,
        "{}: is a safetensors file, expected a config, as configs/*.txtpb are; a run starts "
        "from weights with --initial-weights {}",
        file, ShellWord(file));
  }
  if (kind != FileKind::kText && kind != FileKind::kUnknown && kind != FileKind::kHtml) {
    throw Error(ExitCode::kUsage, "{}: is {}; {}", file, NameOf(kind), kExpected);
  }
  if (text.find('\0') != std::string::npos) {
    throw Error(ExitCode::kUsage, "{}: is no text, it has zero bytes; {}", file, kExpected);
  }
}

std::string ForeignLanguage(const std::string& text) {
  const std::string line = FirstLine(text);
  const char* language = nullptr;
  if (line.starts_with('{') || Matches(R"(^\[[[:space:]]*(\{|"|$))", line)) {
    language = "JSON";
  } else if (Matches(R"(^\[[[:alnum:]_.]+\][[:space:]]*$|^[[:alnum:]_]+[[:space:]]*=)", line)) {
    language = "TOML";
  } else if (line.starts_with("---") || line.starts_with("- ") ||
             Matches(R"(^[[:alnum:]_]+:[[:space:]]*$)", line)) {
    language = "YAML";
  }
  return language == nullptr ? "" : fmt::format("looks like {}: {}", language, kExpected);
}

}  // namespace muster
