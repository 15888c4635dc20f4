#include "common/config/text_errors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "common/base/join.h"
#include "common/base/pattern.h"
#include "common/config/familiar_words.h"
#include "common/config/nearest_name.h"
#include "common/config/number_range.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

// A complaint quotes what it is about, which may be a whole file without a space in it.
std::string Shorten(const std::string& text) {
  constexpr size_t kKept = 200;  // of either end
  if (text.size() <= 2 * kKept) return text;
  return text.substr(0, kKept) + "..." + text.substr(text.size() - kKept);
}

std::string WithoutQuotes(const std::string& text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'');
  return quoted ? text.substr(1, text.size() - 2) : text;
}

std::string UnknownKey(const pb::Descriptor* type, const std::string& path,
                       const std::string& name) {
  const std::string instead = InsteadOf(type, name);
  if (!instead.empty()) return fmt::format("{}: unknown key; {}", path, instead);
  return fmt::format("{}: unknown key; {}", path, SuggestName(name, FieldNames(type)));
}

std::string UnknownValue(const pb::FieldDescriptor& field, const std::string& path,
                         const std::string& value) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(field.enum_type()->value_count()));
  for (int v = 0; v < field.enum_type()->value_count(); ++v) {
    names.push_back(field.enum_type()->value(v)->name());
  }
  return fmt::format("{}: unknown value {}; {}", path, value,
                     SuggestName(WithoutQuotes(value), names));
}

// What to write instead of a plain value where a message belongs, for those that other frameworks
// write so.
std::string MessageFor(const pb::Descriptor& type, const std::string& value) {
  std::string upper = WithoutQuotes(value);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  if (type.name() == "LearningRate")
    return fmt::format("; write learning_rate {{ base: {} }}", value);
  const pb::EnumDescriptor* types = type.FindEnumTypeByName("Type");
  const char* key = "type";
  if (types == nullptr) types = type.FindEnumTypeByName(key = "Format");
  if (types == nullptr || types->FindValueByName(upper) == nullptr) return "";
  return fmt::format("; write {{ {}: {} }}", std::string(key) == "type" ? "type" : "format", upper);
}

}  // namespace

void TextErrors::AddError(int line, pb::io::ColumnNumber column, const std::string& message) {
  if (!first_.empty()) return;
  line_ = line;
  error_line_ = line;
  column_ = column;
  first_ = Translate(column, Shorten(message));
}

bool TextErrors::BlankOut(std::string& text) const {
  if (!one_setting_) return false;
  const auto extent = FindSetting(root_, text, error_line_, column_);
  if (!extent) return false;
  for (size_t i = extent->begin; i < extent->end; ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
  return true;
}

std::string TextErrors::Translate(int column, const std::string& message) {
  using Match = std::vector<std::string>;
  if (line_ < 0) return message;  // about the text as a whole
  // The complaints do not name all of the setting's path; what stands before their place does.
  FieldWalk walk(root_, text_);
  int name_line = -1;
  const pb::FieldDescriptor* field = nullptr;
  const auto is_before = [&](const FieldWalk::Token& token) {
    return token.line < line_ || (token.line == line_ && token.column < column);
  };
  while (walk.Next() && is_before(walk.token())) {
    if (walk.is_name()) key_ = walk.Path();
    if (walk.name().empty()) key_.clear();
    field = walk.field();
    name_line = walk.name_line();
  }
  key_ = Shorten(key_);
  one_setting_ = true;
  if (const Match match =
          Search(R"re(^Message type "([^"]+)" has no field named "([^"]+)")re", message);
      !match.empty()) {
    const pb::Descriptor* type = root_->file()->pool()->FindMessageTypeByName(match[1]);
    if (type != nullptr) return UnknownKey(type, key_, match[2]);
  }
  Match value = Search(R"re(^Unknown enumeration value of "([^"]*)" for field "[^"]+")re", message);
  if (value.empty()) value = Search(R"re(^Expected integer or identifier, got: (.+)$)re", message);
  if (!value.empty() && field != nullptr && field->enum_type() != nullptr) {
    line_ = name_line;  // the parser may be past the value
    return UnknownValue(*field, key_, value[1]);
  }
  if (const Match match = Search(
          R"re(^Field "([^"]+)" is specified along with field "([^"]+)", another member of oneof)re",
          message);
      !match.empty()) {
    return fmt::format("{}: contradicts {}, which is also given: expected exactly one of the two",
                       key_, match[2]);
  }
  if (const Match match =
          Search(R"re(^Non-repeated field "([^"]+)" is specified multiple times)re", message);
      !match.empty()) {
    return fmt::format("{}: given twice: expected once", key_);
  }
  // "Expected integer, got: two", "Integer out of range (99999999999)"
  const Match not_a_number = Search(
      R"re(^(Expected (integer|double), got: |Integer out of range \()(.*[^)]|)\)?$)re", message);
  if (!not_a_number.empty() && field != nullptr && IsNumber(*field)) {
    std::string got = not_a_number[3];
    if (got == "-") got = "a negative one";
    if (got.empty()) got = "nothing: the text ends too early";
    return fmt::format("{}: expected {}, got {}", key_, RangeText(*field), got);
  }
  if (const Match text = Search(R"re(^Expected string, got: (.+)$)re", message); !text.empty()) {
    return fmt::format("{}: expected text in quotes, got {}", key_, text[1]);
  }
  if (!Search(R"re(^Expected .*(got: |found "")\.?$)re", message).empty()) {
    one_setting_ = false;
    return fmt::format("{}the text ends too early: a value or a \"}}\" is missing",
                       key_.empty() ? "" : key_ + ": ");
  }
  const Match not_a_message = Search(R"re(^Expected "\{", found "(.*)"\.?$)re", message);
  if (!not_a_message.empty() && field != nullptr && field->message_type() != nullptr) {
    return fmt::format("{}: expected {{ KEY: VALUE ... }} with keys of {}, got {}{}", key_,
                       Join(FieldNames(field->message_type()), ", "), not_a_message[1],
                       MessageFor(*field->message_type(), not_a_message[1]));
  }
  one_setting_ = false;
  return key_.empty() || name_line != line_ ? message : fmt::format("{}: {}", key_, message);
}

std::vector<std::string> FieldNames(const pb::Descriptor* type) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(type->field_count()));
  for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  return names;
}

std::string LostNumberText(const LostNumber& lost) {
  return fmt::format("{}: {} is too small for a {}, and would become 0: expected 0, or more",
                     lost.path, Shorten(lost.text), lost.type);
}

}  // namespace muster
