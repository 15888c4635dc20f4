#include "common/config/text_format.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <filesystem>

#include "common/base/error.h"
#include "common/base/read_text.h"
#include "common/base/shell_word.h"
#include "common/config/text_errors.h"
#include "common/config/text_fields.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

// So many mistakes are said at once, of texts of at most this size: each takes another reading.
constexpr int kMostMistakes = 50;
constexpr size_t kMostReadAgain = size_t{1} << 20;

// Easily given in place of the config in it.
void RefuseRunDir(const std::string& file) {
  std::error_code ignored;
  const std::filesystem::path config = std::filesystem::path(file) / "config.txtpb";
  if (!std::filesystem::exists(config, ignored)) return;
  throw Error(
      ExitCode::kUsage,
      "{}: is the directory of a run, expected a config: that of the run is {}, and `muster "
      "launch --resume {}` goes on with it",
      file, config.string(), ShellWord(file));
}

void NoteLocations(const pb::Message& message, const pb::TextFormat::ParseInfoTree* tree,
                   const std::string& file, const std::string& path, Locations& locations) {
  std::vector<const pb::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const int index = field->is_repeated() ? i : -1;
      std::string name = path + field->name();
      if (field->is_repeated()) name += fmt::format("[{}]", i);
      const int line = tree == nullptr ? -1 : tree->GetLocation(field, index).line;
      if (line >= 0) locations[name] = fmt::format("{}:{}", file, line + 1);
      if (field->message_type() == nullptr) continue;
      const auto* nested = tree == nullptr ? nullptr : tree->GetTreeForNested(field, index);
      const pb::Message& child =
          field->is_repeated() ? message.GetReflection()->GetRepeatedMessage(message, field, i)
                               : message.GetReflection()->GetMessage(message, field);
      NoteLocations(child, nested, file, name + ".", locations);
    }
  }
}

}  // namespace

void ParseTextFile(const std::string& file, const std::string& prefix, pb::Message& message,
                   Locations& locations, ConfigErrors& errors) {
  RefuseRunDir(file);
  std::string text = ReadTextFile(file);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // a byte-order mark
  if (text.empty() || text.find('\0') != std::string::npos) {
    throw Error(ExitCode::kUsage, "{}: {}; expected protobuf text format, as in configs/*.txtpb",
                file, text.empty() ? "the file is empty" : "is not a text file");
  }
  ParseText(text, file, prefix, message, locations, errors);
}

void ParseText(const std::string& text, const std::string& file, const std::string& prefix,
               pb::Message& message, Locations& locations, ConfigErrors& errors) {
  const std::string before = prefix.empty() ? "" : prefix + ".";
  // The parser stops at the first error. What it refuses is blanked out, and the rest read again.
  std::string rest = text;
  for (int mistakes = 0;; ++mistakes) {
    TextErrors found(message.GetDescriptor(), rest);
    pb::TextFormat::ParseInfoTree tree;
    pb::TextFormat::Parser parser;
    parser.RecordErrorsTo(&found);
    parser.WriteLocationsTo(&tree);
    parser.SetRecursionLimit(kMostTextNesting);
    if (parser.ParseFromString(rest, &message)) {
      NoteLocations(message, &tree, file, before, locations);
      break;
    }
    errors.AddUnread(before + found.key(),
                     fmt::format("{}:{}: {}", file, found.line() + 1, found.first()));
    if (mistakes == kMostMistakes || text.size() > kMostReadAgain || !found.BlankOut(rest)) {
      errors.ThrowIfAny();
    }
  }
  if (const auto lost = FindLostNumber(message.GetDescriptor(), rest)) {
    errors.AddUnread(before + lost->path, fmt::format("{}:{}: {}{}", file, lost->line + 1, before,
                                                      LostNumberText(*lost)));
  }
}

void ParseText(const std::string& text, const std::string& file, const std::string& prefix,
               pb::Message& message, Locations& locations) {
  ConfigErrors errors;
  ParseText(text, file, prefix, message, locations, errors);
  errors.ThrowIfAny();
}

}  // namespace muster
