#include "common/config/text_format.h"

#include <fmt/core.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/leading_zero.h"
#include "common/base/text.h"
#include "common/config/limits.h"
#include "common/config/nearest_name.h"

namespace muster {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;
using pb::io::Tokenizer;

constexpr size_t kMostMistakes = 50;
constexpr int kMostNesting = 32;  // of brackets
constexpr const char* kExpected =
    "expected protobuf text format, as in configs/*.txtpb: run { epochs: 10 global_batch: 128 }";

// Keeps only both ends of a long text: a file may have no spaces.
std::string Shorten(const std::string& text) {
  constexpr size_t kKept = 200;  // at each end
  if (text.size() <= 2 * kKept) return text;
  return text.substr(0, kKept) + "..." + text.substr(text.size() - kKept);
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

// The tokenizer's first error in a token.
class Complaint : public pb::io::ErrorCollector {
 public:
  void AddError(int, pb::io::ColumnNumber, const std::string& message) override {
    if (text.empty()) text = Shorten(message);
  }
  std::string text;
};

// Reads a text once. A mistake in a setting skips its value. Where the text is not of this format,
// it ends: what follows has no meaning.
class Reader {
 public:
  Reader(const std::string& text, const PlaceOfLine& place, const pb::Descriptor* root,
         ConfigErrors& errors)
      : stream_(text.data(), static_cast<int>(text.size())),
        tokens_(&stream_, &complaint_),
        place_(place),
        root_(root),
        errors_(errors) {
    // As protobuf's own parser.
    tokens_.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    tokens_.set_allow_f_after_float(true);
  }

  void Read(const std::string& prefix, pb::Message& message) {
    const std::string before = prefix.empty() ? "" : prefix + ".";
    Next();
    ReadBody(message, {before, before}, "");
    if (!complaint_.text.empty()) End(complaint_.text + "; " + kExpected);
    for (const Mistake& mistake : mistakes_) {
      errors_.AddUnread(mistake.key, fmt::format("{}: {}", place_(mistake.line), mistake.text));
    }
    if (ended_) errors_.ThrowIfAny();
  }

 private:
  struct Mistake {
    int line;
    std::string key, text;
    std::string behind_bracket;  // the name of this setting, if it is one of the outermost
  };
  // The path of a message, with a dot at its end.
  struct Path {
    std::string key;      // model.layer.
    std::string element;  // model.layer[2].
  };
  struct Value {
    std::string text;
    bool plain = false;     // one number, name or string
    bool unclosed = false;  // a string without its end
  };

  const Tokenizer::Token& token() { return tokens_.current(); }
  bool AtEnd() { return ended_ || token().type == Tokenizer::TYPE_END; }
  bool At(char symbol) {
    return !ended_ && token().type == Tokenizer::TYPE_SYMBOL && token().text[0] == symbol;
  }
  bool AtAnyOf(std::string_view symbols) {
    return std::ranges::any_of(symbols, [this](char symbol) { return At(symbol); });
  }
  void Next() {
    if (!ended_) tokens_.Next();
  }
  bool Take(char symbol) {
    if (!At(symbol)) return false;
    Next();
    return true;
  }

  void Add(const std::string& what) {
    if (mistakes_.size() == kMostMistakes) ended_ = true;
    if (!ended_) mistakes_.push_back({setting_line_, setting_, setting_ + ": " + what, ""});
  }

  // The rest cannot be read. What led to this may have been reported for the last setting.
  void End(const std::string& why) {
    if (ended_) return;
    ended_ = true;
    const int line = token().line;
    if (!mistakes_.empty() && !setting_.empty() && mistakes_.back().key == setting_) {
      mistakes_.back().text += "; " + why;
    } else {
      const std::string setting = setting_line_ == line && !setting_.empty() ? setting_ + ": " : "";
      mistakes_.push_back({line, "", setting + why, ""});
    }
  }

  // All settings after a missing bracket look unknown, so only the first one is reported.
  void EndEarly() {
    if (ended_) return;
    const auto is_behind = [](const Mistake& one) { return !one.behind_bracket.empty(); };
    const auto first = std::ranges::find_if(mistakes_, is_behind);
    if (first == mistakes_.end()) {
      return End("the text ends too early: a value or a \"}\" is missing");
    }
    ended_ = true;
    const Mistake missing{first->line, "",
                          fmt::format("a \"}}\" is missing before {}", first->behind_bracket), ""};
    std::erase_if(mistakes_, is_behind);
    mistakes_.push_back(missing);
  }

  // Reads settings up to a bracket that ends them, or up to the end for "".
  void ReadBody(pb::Message& message, const Path& path, std::string_view closing) {
    std::map<const FieldDescriptor*, int> given;  // the line of each setting
    while (!AtEnd() && !AtAnyOf(closing)) {
      if (!complaint_.text.empty()) {
        End(complaint_.text + "; " + kExpected);
      } else if (token().type == Tokenizer::TYPE_IDENTIFIER) {
        ReadSetting(message, path, given);
        if (!Take(';')) Take(',');
      } else if (closing.empty() && AtAnyOf("}>")) {
        setting_.clear();
        End(fmt::format("there is no \"{}\" for this \"{}\"", At('}') ? '{' : '<', token().text));
      } else {
        const bool number = token().type == Tokenizer::TYPE_INTEGER;
        End(fmt::format("unexpected {}{}; {}", Shorten(token().text),
                        At('/')  ? " (comments begin with #)"
                        : number ? " (a number has a point, not a comma; a list is [1, 2])"
                                 : "",
                        kExpected));
      }
    }
  }

  void ReadSetting(pb::Message& message, const Path& path,
                   std::map<const FieldDescriptor*, int>& given) {
    const std::string name = Shorten(token().text);
    const int line = setting_line_ = token().line;
    const pb::Descriptor* const type = message.GetDescriptor();
    const FieldDescriptor* const field = type->FindFieldByName(name);
    setting_ = path.key + name;
    Next();
    const bool colon = Take(':');
    const bool has_value = colon || AtAnyOf(field == nullptr ? "{<[" : "{<");
    if (!has_value && (field == nullptr || field->message_type() == nullptr)) {
      if (AtEnd()) return EndEarly();
      return End(
          fmt::format("expected \":\" and a value, got {}; {}", Shorten(token().text), kExpected));
    }
    if (field == nullptr && type->IsReservedName(name)) {
      errors_.removed.push_back(fmt::format("{}: {}", place_(line), setting_));
      if (TakeValue().text.empty()) Add("expected a value, got nothing");
      return;
    }
    if (field == nullptr) {
      // The layers of a network that is taken for a config would all be unknown.
      const bool again =
          type == root_ && std::ranges::count(mistakes_, setting_, &Mistake::key) > 0;
      if (again) return SkipValue();
      Add(UnknownKey(type, name));
      if (type != root_ && !ended_ && root_->FindFieldByName(name) != nullptr) {
        mistakes_.back().behind_bracket = name;
      }
      return SkipValue();
    }
    if (const std::string again = GivenAgain(*field, given); !again.empty()) {
      Add(again);
      return SkipValue();
    }
    given.emplace(field, line);
    if (!field->is_repeated() || !Take('[')) {
      ReadValue(message, *field, path, line);
      if (!has_value) End(kExpected);
      return;
    }
    if (Take(']')) return;
    do {
      setting_ = path.key + name;
      setting_line_ = token().line;
      ReadValue(message, *field, path, setting_line_);
    } while (Take(','));
    if (!Take(']')) AtEnd() ? EndEarly() : End("expected \",\" or \"]\"");
  }

  std::string GivenAgain(const FieldDescriptor& field,
                         const std::map<const FieldDescriptor*, int>& given) const {
    if (field.is_repeated()) return "";
    const pb::OneofDescriptor* const oneof = field.real_containing_oneof();
    for (const auto& [other, line] : given) {
      if (other == &field) {
        return fmt::format(
            "given twice, first at {}: {}", place_(line),
            field.message_type() == nullptr ? "remove one" : "put all its settings into one block");
      }
      if (oneof != nullptr && other->containing_oneof() == oneof) {
        return fmt::format("expected one of {} ({}) and {}, got both: remove one", other->name(),
                           place_(line), field.name());
      }
    }
    return "";
  }

  // The value of a setting, or one of a list.
  void ReadValue(pb::Message& message, const FieldDescriptor& field, const Path& path, int line) {
    const pb::Reflection& reflection = *message.GetReflection();
    const bool is_message = field.message_type() != nullptr;
    std::string element = path.element + field.name();
    const int index = field.is_repeated() ? reflection.FieldSize(message, &field) : -1;
    if (index >= 0) element += fmt::format("[{}]", index);
    if (is_message || index <= 0) errors_.locations[element] = place_(line);  // lists may be long
    if (!is_message || !AtAnyOf("{<")) {
      const Value value = TakeValue();
      if (ended_) return;
      const bool fits = value.plain && !is_message && SetScalar(message, field, value.text);
      if (!fits) Add(WrongValue(field, Shorten(value.text)));
      if (value.unclosed) End("the closing quote is missing in this line");
      return;
    }
    if (++depth_ > kMostNesting) return End(fmt::format("more than {} brackets", kMostNesting));
    const char closing = At('{') ? '}' : '>';
    Next();
    pb::Message& inner = field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                             : *reflection.MutableMessage(&message, &field);
    ReadBody(inner, {path.key + field.name() + ".", element + "."}, {&closing, 1});
    --depth_;
    if (!Take(closing)) EndEarly();
  }

  void SkipValue() { (void)TakeValue(); }

  // Takes a sign with a number, strings that follow one another, a block in brackets, and what
  // follows without a space, as in 5x or runs/a.
  Value TakeValue() {
    Value value;
    int depth = 0, tokens = 0;
    bool only_strings = true;
    std::string complaint;
    for (bool more = true; more;) {
      if (AtEnd()) {
        EndEarly();
        return {};
      }
      if (AtAnyOf("]}>") && --depth < 0) break;
      if (AtAnyOf("[{<")) ++depth;
      const bool is_sign = At('-') && tokens == 0;
      const bool is_string = token().type == Tokenizer::TYPE_STRING;
      only_strings &= is_string;
      if (!is_sign) ++tokens;
      value.text += token().text;
      complaint += std::exchange(complaint_.text, "");  // such as 08
      value.unclosed |= is_string && !complaint.empty();
      const int line = token().line, column = token().end_column;
      const bool may_follow = !is_string && !AtAnyOf("]}>");
      Next();
      const bool follows = may_follow && token().line == line && token().column == column;
      more =
          depth > 0 || is_sign || (is_string && token().type == Tokenizer::TYPE_STRING) ||
          (follows && !AtEnd() && token().type != Tokenizer::TYPE_STRING && !AtAnyOf("[{<]}>,;"));
    }
    value.plain = complaint.empty() && (tokens == 1 || (tokens > 1 && only_strings));
    return value;
  }

  pb::io::ArrayInputStream stream_;
  Complaint complaint_;
  Tokenizer tokens_;
  const PlaceOfLine& place_;
  const pb::Descriptor* const root_;
  ConfigErrors& errors_;
  std::vector<Mistake> mistakes_;
  std::string setting_;  // the one that was read last
  int setting_line_ = -1;
  int depth_ = 0;
  bool ended_ = false;  // too early
};

}  // namespace

bool SetScalar(pb::Message& message, const FieldDescriptor& field, const std::string& text) {
  if (HasLeadingZero(text)) return false;
  std::string value = text;
  if (field.enum_type() != nullptr) {
    // The parser would also take numbers, but PyTorch's padding=1 does not mean VALID.
    const pb::EnumValueDescriptor* const known = FindEnumValue(*field.enum_type(), text);
    if (known == nullptr) return false;
    value = known->name();
  }
  Complaint ignored;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&ignored);
  return parser.ParseFieldValueFromString(value, &field, &message) && ignored.text.empty();
}

std::string ParseTextFile(const std::string& file, const std::string& prefix, pb::Message& message,
                          ConfigErrors& errors) {
  RefuseRunDir(file);
  std::string text = ReadTextFile(file);
  if (text.starts_with("\xEF\xBB\xBF"))
    text.erase(0, 3);  // a byte order mark, written by some editors
  if (text.empty()) throw Error(ExitCode::kUsage, "{}: the file is empty; {}", file, kExpected);
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw Error(ExitCode::kUsage, "{}: is a text in UTF-16: save it as UTF-8", file);
  }
  if (text.find('\0') != std::string::npos) {
    throw Error(ExitCode::kUsage,
                "{}: is not a text file; {}. If it holds weights, start a run from them with "
                "--initial-weights {}",
                file, kExpected, ShellWord(file));
  }
  const PlaceOfLine place = [&](int line) { return fmt::format("{}:{}", file, line + 1); };
  ParseText(text, place, prefix, message, errors);
  return text;
}

void ParseText(const std::string& text, const PlaceOfLine& place, const std::string& prefix,
               pb::Message& message, ConfigErrors& errors) {
  Reader(text, place, message.GetDescriptor(), errors).Read(prefix, message);
}

void ParseText(const std::string& text, const std::string& origin, const std::string& prefix,
               pb::Message& message) {
  ConfigErrors errors(origin);
  const PlaceOfLine place = [&](int line) { return fmt::format("{}:{}", origin, line + 1); };
  ParseText(text, place, prefix, message, errors);
  errors.ThrowIfAny();
}

}  // namespace muster
