#include "common/config/text_format.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <filesystem>

#include "common/base/error.h"
#include "common/base/file_kind.h"
#include "common/base/read_text.h"
#include "common/config/text_errors.h"
#include "common/config/text_fields.h"
#include "common/config/text_kind.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

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
                   Locations& locations) {
  RefuseRunDir(file);
  std::string text = ReadTextFile(file);
  RequireText(file, text);
  ParseText(text, file, prefix, message, locations);
}

void ParseText(const std::string& text, const std::string& file, const std::string& prefix,
               pb::Message& message, Locations& locations) {
  TextErrors errors(message.GetDescriptor(), text);
  pb::TextFormat::ParseInfoTree tree;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  parser.SetRecursionLimit(kMostTextNesting);
  if (!parser.ParseFromString(text, &message)) {
    const std::string foreign = ForeignLanguage(text);
    if (!foreign.empty()) throw Error(ExitCode::kUsage, "{}: {}", file, foreign);
    throw Error(ExitCode::kUsage, "{}:{}: {}", file, errors.line() + 1, errors.first());
  }
  if (const auto lost = FindLostNumber(message.GetDescriptor(), text)) {
    throw Error(ExitCode::kUsage, "{}:{}: {}{}", file, lost->line + 1,
                prefix.empty() ? "" : prefix + ".", LostNumberText(*lost));
  }
  NoteLocations(message, &tree, file, prefix.empty() ? "" : prefix + ".", locations);
}

}  // namespace muster
