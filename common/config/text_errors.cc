#include "common/config/text_errors.h"

#include <fmt/core.h>

#include "common/base/join.h"
#include "common/base/pattern.h"
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

// "run." for the first place in the config where a message of this type lies; "" for the root.
bool FindPath(const pb::Descriptor* from, const pb::Descriptor* wanted, int depth,
              std::string& path) {
  if (from == wanted) return true;
  if (depth == 0) return false;
  for (int i = 0; i < from->field_count(); ++i) {
    const pb::FieldDescriptor* field = from->field(i);
    if (field->message_type() == nullptr) continue;
    const size_t length = path.size();
    path += std::string(field->name()) + ".";
    if (FindPath(field->message_type(), wanted, depth - 1, path)) return true;
    path.resize(length);
  }
  return false;
}

// "layer.conv2d." or "run.": where in the config a message of this type stands.
std::string PathOf(const pb::Descriptor* root, const pb::Descriptor* wanted) {
  for (int depth = 0; depth <= 6; ++depth) {  // shortest first
    std::string path;
    if (FindPath(root, wanted, depth, path)) return path;
  }
  return "";
}

}  // namespace

void TextErrors::AddError(int line, pb::io::ColumnNumber column, const std::string& message) {
  if (!first_.empty()) return;
  line_ = line;
  first_ = Translate(column, Shorten(message));
}

std::string TextErrors::Translate(int column, const std::string& message) {
  using Match = std::vector<std::string>;
  const pb::DescriptorPool* pool = root_->file()->pool();
  if (const Match match =
          Search(R"re(^Message type "([^"]+)" has no field named "([^"]+)")re", message);
      !match.empty()) {
    const pb::Descriptor* type = pool->FindMessageTypeByName(match[1]);
    if (type != nullptr) {
      return fmt::format("{}{}: unknown key; {}", PathOf(root_, type), match[2],
                         SuggestName(match[2], FieldNames(type)));
    }
  }
  if (line_ < 0) return message;  // about the text as a whole
  // The other complaints do not name the message; what stands before their place does.
  FieldWalk walk(root_, text_);
  int name_line = -1;
  std::string key;
  const pb::FieldDescriptor* field = nullptr;
  const auto is_before = [&](const FieldWalk::Token& token) {
    return token.line < line_ || (token.line == line_ && token.column < column);
  };
  while (walk.Next() && is_before(walk.token())) {
    key = walk.name();
    field = walk.field();
    name_line = walk.name_line();
  }
  if (const Match match =
          Search(R"re(^Unknown enumeration value of "([^"]*)" for field "([^"]+)")re", message);
      !match.empty() && field != nullptr && field->enum_type() != nullptr) {
    line_ = name_line;  // the parser is past the value
    std::vector<std::string> values;
    values.reserve(static_cast<size_t>(field->enum_type()->value_count()));
    for (int v = 0; v < field->enum_type()->value_count(); ++v) {
      values.push_back(field->enum_type()->value(v)->name());
    }
    return fmt::format("{}: unknown value {}; {}", match[2], match[1],
                       SuggestName(match[1], values));
  }
  if (const Match match = Search(
          R"re(^Field "([^"]+)" is specified along with field "([^"]+)", another member of oneof)re",
          message);
      !match.empty()) {
    return fmt::format("{}: contradicts {}, which is also given: expected exactly one of the two",
                       match[1], match[2]);
  }
  if (const Match match =
          Search(R"re(^Non-repeated field "([^"]+)" is specified multiple times)re", message);
      !match.empty()) {
    return fmt::format("{}: given twice: expected once", match[1]);
  }
  // "Expected integer, got: two", "Integer out of range (99999999999)"
  const Match not_a_number = Search(
      R"re(^(Expected (integer|double), got: |Integer out of range \()(.*[^)]|)\)?$)re", message);
  if (!not_a_number.empty() && field != nullptr && IsNumber(*field)) {
    std::string got = not_a_number[3];
    if (got == "-") got = "a negative one";
    if (got.empty()) got = "nothing: the text ends too early";
    return fmt::format("{}: expected {}, got {}", key, RangeText(*field), got);
  }
  if (!Search(R"re(^Expected .*(got: |found "")\.?$)re", message).empty()) {
    return fmt::format("{}the text ends too early: a value or a \"}}\" is missing",
                       key.empty() ? "" : key + ": ");
  }
  const Match not_a_message = Search(R"re(^Expected "\{", found "(.*)"\.?$)re", message);
  if (!not_a_message.empty() && field != nullptr && field->message_type() != nullptr) {
    return fmt::format("{}: expected {{ KEY: VALUE ... }} with keys of {}, got {}", key,
                       Join(FieldNames(field->message_type()), ", "), not_a_message[1]);
  }
  return key.empty() || name_line != line_ ? message : fmt::format("{}: {}", key, message);
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
