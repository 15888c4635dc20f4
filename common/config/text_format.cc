#include "common/config/text_format.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <filesystem>
#include <fstream>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/config/text_errors.h"
#include "common/config/text_fields.h"
#include "common/config/text_kind.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

std::string ReadFile(const std::string& file) {
  if (std::error_code ignored; std::filesystem::is_directory(file, ignored)) {
    throw Error(ExitCode::kUsage, "{}: is a directory, expected a file", file);
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(ExitCode::kUsage, "{}: cannot be read: {}", file, ErrorText(errno));
  // More is no text that anybody wrote; /dev/zero never ends.
  constexpr size_t kMost = 64 << 20;
  std::string text;
  for (size_t size = 0; in && size <= kMost; size = text.size()) {
    text.resize(size + (1 << 16));
    in.read(text.data() + size, 1 << 16);
    text.resize(size + static_cast<size_t>(in.gcount()));
  }
  if (in.bad()) throw Error(ExitCode::kUsage, "{}: cannot be read: is it a file?", file);
  if (text.size() > kMost) {
    throw Error(ExitCode::kUsage, "{}: larger than {} MiB: is it a config?", file, kMost >> 20);
  }
  return text;
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
  std::string text = ReadFile(file);
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
  parser.SetRecursionLimit(32);
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
