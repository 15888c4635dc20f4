#include "common/config/text_format.h"

#include <fmt/core.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "common/config/limits.h"
#include "common/config/nearest_name.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

// The maximum number of mistakes to report, and the size in bytes of the largest text that is
// parsed again after a mistake.
constexpr size_t kMostMistakes = 50;
constexpr size_t kMostReadAgain = size_t{1} << 20;
constexpr const char* kExpected =
    "expected protobuf text format, as in configs/*.txtpb: run { epochs: 10 global_batch: 128 }";

struct Complaint {
  int line = 0, column = 0;
  std::string message;
};
struct Complaints {
  std::optional<Complaint> error;  // the first one; the parser stops there
  std::vector<Complaint> unknown;  // keys that the parser skipped
};

class Collector : public pb::io::ErrorCollector {
 public:
  explicit Collector(Complaints& found) : found_(found) {}

  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (!found_.error) found_.error = Complaint{line, column, Shorten(message)};
  }
  void AddWarning(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (found_.unknown.size() > kMostMistakes) return;
    found_.unknown.push_back({line, column, Shorten(message)});
  }

 private:
  Complaints& found_;
};

// The message that contains a setting, and the setting's field. nullptr if it does not exist.
struct Key {
  const pb::Descriptor* in = nullptr;
  const pb::FieldDescriptor* field = nullptr;
  std::string name = {};
};
Key KeyAt(const pb::Descriptor* root, const std::string& path) {
  Key key{.in = root};
  for (size_t begin = 0;;) {
    const size_t dot = path.find('.', begin);
    key.name = path.substr(begin, dot - begin);
    key.field = key.in == nullptr ? nullptr : key.in->FindFieldByName(key.name);
    if (dot == std::string::npos) return key;
    key.in = key.field == nullptr ? nullptr : key.field->message_type();
    begin = dot + 1;
  }
}

// The last name with this path, or another of its oneof, before the one at `name`.
SettingName GivenBefore(const std::string& text, const pb::Descriptor* root,
                        const SettingName& name) {
  const pb::FieldDescriptor* const field = KeyAt(root, name.path).field;
  const pb::OneofDescriptor* const oneof = field->real_containing_oneof();
  const auto parent = [](const std::string& path) { return path.substr(0, path.rfind('.') + 1); };
  SettingName before;
  VisitNames(text, [&](const SettingName& other) {
    if (other.offset == name.offset) return false;
    if (parent(other.path) != parent(name.path)) return true;
    const pb::FieldDescriptor* const given = KeyAt(root, other.path).field;
    const bool excludes =
        given != nullptr && oneof != nullptr && given->containing_oneof() == oneof;
    if (given == field || excludes) before = other;
    return true;
  });
  return before;
}

// Explains what is wrong with a setting. Returns "" if the complaint is about the text around it.
std::string Explain(const pb::FieldDescriptor* field, const std::string& value,
                    const std::string& complaint) {
  const auto is = [&](const char* start) { return complaint.starts_with(start); };
  if (field == nullptr) return "";
  if (!is("Expected integer") && !is("Expected double") && !is("Expected string") &&
      !is("Expected \"{\"") && !is("Unknown enum") && !is("Integer out of range") &&
      !is("Invalid value")) {
    return "";
  }
  return WrongValue(*field, value);
}

// Users often pass a run directory instead of the config in it.
void RefuseRunDir(const std::string& file) {
  std::error_code ignored;
  const std::filesystem::path config = std::filesystem::path(file) / "config.txtpb";
  if (!std::filesystem::exists(config, ignored)) return;
  throw Error(ExitCode::kUsage,
              "{}: is a run directory, expected a config: use {}, or continue the run with `muster "
              "launch --resume {}`",
              file, config.string(), ShellWord(file));
}

void NoteLocations(const pb::Message& message, const pb::TextFormat::ParseInfoTree* tree,
                   const PlaceOfLine& place, const std::string& path, ConfigErrors& errors) {
  std::vector<const pb::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const int index = field->is_repeated() ? i : -1;
      std::string name = path + field->name();
      if (field->is_repeated()) name += fmt::format("[{}]", i);
      const int line = tree == nullptr ? -1 : tree->GetLocation(field, index).line;
      if (line >= 0) errors.locations[name] = place(line);
      if (field->message_type() == nullptr) continue;
      const auto* nested = tree == nullptr ? nullptr : tree->GetTreeForNested(field, index);
      const pb::Message& child =
          field->is_repeated() ? message.GetReflection()->GetRepeatedMessage(message, field, i)
                               : message.GetReflection()->GetMessage(message, field);
      NoteLocations(child, nested, place, name + ".", errors);
    }
  }
}

// Records removed settings, which the parser silently skips.
void NoteRemoved(const std::string& text, const PlaceOfLine& place, const std::string& before,
                 const pb::Descriptor* root, ConfigErrors& errors) {
  VisitNames(text, [&](const SettingName& name) {
    const Key key = KeyAt(root, name.path);
    if (key.field == nullptr && key.in != nullptr && key.in->IsReservedName(key.name)) {
      errors.removed.push_back(fmt::format("{}: {}{}", place(name.line), before, name.path));
    }
    return true;
  });
}

// Parses a text repeatedly, leaving out one more bad setting each time, until parsing succeeds.
class Reading {
 public:
  Reading(const std::string& text, const PlaceOfLine& place, const std::string& prefix,
          pb::Message& message)
      : text_(text),
        place_(place),
        before_(prefix.empty() ? "" : prefix + "."),
        message_(message),
        root_(message.GetDescriptor()) {}

  void Run(ConfigErrors& errors) {
    std::string rest = text_;
    CheckValues(rest);
    bool whole = false;
    do {
      whole = Parse(rest, errors);
    } while (!whole && LeaveOut(rest));
    for (const Complaint& unknown : found_.unknown) NoteUnknown(rest, unknown);
    if (!whole) NoteEnd();
    std::ranges::stable_sort(mistakes_, {}, &Mistake::line);
    for (const Mistake& mistake : mistakes_) {
      errors.AddUnread(mistake.path.empty() ? "" : before_ + mistake.path,
                       fmt::format("{}: {}", place_(mistake.line), mistake.text));
    }
    if (!whole || mistakes_.size() > kMostMistakes) errors.ThrowIfAny();
    NoteRemoved(rest, place_, before_, root_, errors);
  }

 private:
  struct Mistake {
    int line;
    std::string path, text;
  };

  // Enum values may be in upper or lower case, as on the command line. The parser also accepts two
  // kinds of values that are refused here: numbers of enum values, because PyTorch's padding=1 does
  // not mean VALID, and octal numbers.
  void CheckValues(std::string& rest) {
    VisitNames(text_, [&](const SettingName& name) {
      // Without this the parser would stop at 08.
      for (const size_t zero : name.leading_zeros) rest[zero] = '1';
      const pb::FieldDescriptor* const field = KeyAt(root_, name.path).field;
      if (field == nullptr || name.value.empty()) return true;
      const pb::EnumDescriptor* const values = field->enum_type();
      const auto* const value = values == nullptr ? nullptr : FindEnumValue(*values, name.value);
      if (value != nullptr) {
        rest.replace(name.value_offset, name.value.size(), value->name());
      } else if ((values != nullptr || !name.leading_zeros.empty()) &&
                 mistakes_.size() < kMostMistakes) {
        Add(name, WrongValue(*field, name.value));
        rest[name.offset] = '_';
      }
      return true;
    });
  }

  bool Parse(const std::string& rest, ConfigErrors& errors) {
    found_ = {};
    pb::TextFormat::ParseInfoTree tree;
    pb::TextFormat::Parser parser;
    Collector collector(found_);
    parser.RecordErrorsTo(&collector);
    parser.WriteLocationsTo(&tree);
    parser.AllowUnknownField(true);
    parser.SetRecursionLimit(kMostTextNesting);
    if (!parser.ParseFromString(rest, &message_)) return false;
    NoteLocations(message_, &tree, place_, before_, errors);
    return true;
  }

  void Add(const SettingName& name, const std::string& what) {
    mistakes_.push_back({name.line, name.path, fmt::format("{}{}: {}", before_, name.path, what)});
  }

  std::string Explain(const SettingName& name, const std::string& complaint) const {
    const pb::FieldDescriptor* const field = KeyAt(root_, name.path).field;
    // The parser's words for a setting that is given again, or with another of its oneof.
    if (field != nullptr &&
        (complaint.starts_with("Field ") || complaint.starts_with("Non-repeated field "))) {
      return GivenAgain(*field, name);
    }
    return muster::Explain(field, name.value, complaint);
  }

  std::string GivenAgain(const pb::FieldDescriptor& field, const SettingName& name) const {
    const SettingName before = GivenBefore(text_, root_, name);
    const Key first = KeyAt(root_, before.path);
    if (first.field == nullptr) return "given twice: keep one";
    const std::string where = place_(before.line);
    if (first.field != &field) {
      return fmt::format("expected one of {} ({}) and {}, got both: remove one", first.name, where,
                         field.name());
    }
    return fmt::format(
        "given twice, first at {}: {}", where,
        field.message_type() == nullptr ? "remove one" : "put all its settings into one block");
  }

  // Whether LeaveOut or CheckValues changed this name to make the parser skip it.
  bool IsLeftOut(const std::string& rest, size_t offset) const {
    return rest[offset] == '_' && text_[offset] != '_';
  }

  // Makes the parser skip the setting at which it stopped, by making its name unknown. Returns
  // false if it did not stop at a setting.
  bool LeaveOut(std::string& rest) {
    if (!found_.error || mistakes_.size() == kMostMistakes || text_.size() > kMostReadAgain)
      return false;
    const SettingName name = NameBefore(text_, found_.error->line, found_.error->column);
    if (name.line < 0) return false;
    const std::string what = Explain(name, found_.error->message);
    const size_t offset = name.offset;
    if (what.empty() || rest[offset] == '_') return false;
    Add(name, what);
    rest[offset] = '_';
    return true;
  }

  void NoteUnknown(const std::string& rest, const Complaint& unknown) {
    const SettingName name = NameBefore(text_, unknown.line, unknown.column);
    if (name.line < 0 || IsLeftOut(rest, name.offset)) return;
    const Key key = KeyAt(root_, name.path);
    // A network file given in place of a config repeats the same unknown key many times.
    const bool again = key.in == root_ && std::ranges::any_of(mistakes_, [&](const Mistake& m) {
                         return m.path == name.path;
                       });
    if (again || mistakes_.size() > kMostMistakes) return;
    const bool is_key = key.in != nullptr && key.field == nullptr;
    Add(name, is_key ? UnknownKey(key.in, key.name) : unknown.message);
  }

  // Reports a missing "}". All settings after it look unknown, so only the first one is reported.
  bool NoteMissingBracket() {
    const auto last_part = [](const Mistake& mistake) {
      return mistake.path.substr(mistake.path.rfind('.') + 1);
    };
    const auto is_behind = [&](const Mistake& mistake) {
      return mistake.path.find('.') != std::string::npos &&
             root_->FindFieldByName(last_part(mistake)) != nullptr;
    };
    const auto first = std::ranges::find_if(mistakes_, is_behind);
    if (first == mistakes_.end()) return false;
    Mistake missing{first->line, "",
                    fmt::format("a \"}}\" is missing before {}", last_part(*first))};
    std::erase_if(mistakes_, is_behind);
    mistakes_.push_back(std::move(missing));
    return true;
  }

  // Called when the parser stopped at something that is not a setting.
  void NoteEnd() {
    const Complaint end = found_.error.value_or(Complaint{});
    if (end.message == "Expected identifier, got: }") {
      mistakes_.push_back({end.line, "", "there is no \"{\" for this \"}\""});
      return;
    }
    const bool at_end = end.message.ends_with(": ") || end.message.ends_with("found \"\".");
    if (at_end && NoteMissingBracket()) return;
    const std::string advice =
        at_end ? "the text ends too early: a value or a \"}\" is missing" : kExpected;
    const SettingName name = NameBefore(text_, end.line, end.column);
    const auto cause = std::ranges::find_if(mistakes_, [&](const Mistake& mistake) {
      return (name.path + ".").starts_with(mistake.path + ".");
    });
    if (cause != mistakes_.end() && (cause->path == name.path || !at_end)) {
      if (cause->path == name.path) cause->text += "; " + advice;
      return;
    }
    const std::string what = name.line < 0 ? "" : Explain(name, end.message);
    if (!what.empty() && !at_end) return Add(name, what);  // a second value, or too much text
    const std::string setting = name.line == end.line ? before_ + name.path + ": " : "";
    mistakes_.push_back({end.line, "", setting + (at_end ? "" : end.message + "; ") + advice});
  }

  const std::string& text_;
  const PlaceOfLine& place_;
  const std::string before_;
  pb::Message& message_;
  const pb::Descriptor* const root_;
  Complaints found_;  // of the last parse
  std::vector<Mistake> mistakes_;
};

}  // namespace

void ParseTextFile(const std::string& file, const std::string& prefix, pb::Message& message,
                   ConfigErrors& errors) {
  RefuseRunDir(file);
  std::string text = ReadTextFile(file);
  if (text.starts_with("\xEF\xBB\xBF"))
    text.erase(0, 3);  // a byte order mark, written by some editors
  if (text.empty()) throw Error(ExitCode::kUsage, "{}: the file is empty; {}", file, kExpected);
  if (text.find('\0') != std::string::npos) {
    throw Error(ExitCode::kUsage,
                "{}: is not a text file; {}. If it holds weights, start a run from them with "
                "--initial-weights {}",
                file, kExpected, ShellWord(file));
  }
  const PlaceOfLine place = [&](int line) { return fmt::format("{}:{}", file, line + 1); };
  ParseText(text, place, prefix, message, errors);
}

void ParseText(const std::string& text, const PlaceOfLine& place, const std::string& prefix,
               pb::Message& message, ConfigErrors& errors) {
  Reading(text, place, prefix, message).Run(errors);
}

void ParseText(const std::string& text, const std::string& origin, const std::string& prefix,
               pb::Message& message) {
  ConfigErrors errors(origin);
  const PlaceOfLine place = [&](int line) { return fmt::format("{}:{}", origin, line + 1); };
  ParseText(text, place, prefix, message, errors);
  errors.ThrowIfAny();
}

}  // namespace muster
