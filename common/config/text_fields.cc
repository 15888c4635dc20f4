#include "common/config/text_fields.h"

#include <algorithm>
#include <cctype>

namespace muster {
namespace {

namespace pb = google::protobuf;
using pb::io::Tokenizer;

// Whether a number is not written as 0: 1e-500 is not, 0.0e5 is.
bool HasDigits(const std::string& number) {
  return number.substr(0, number.find_first_of("eE")).find_first_of("123456789") !=
         std::string::npos;
}

// Where a token begins, whose column counts a tab as up to the next multiple of 8.
size_t OffsetOf(const std::string& text, const Tokenizer::Token& token) {
  size_t at = 0;
  for (int line = 0; line < token.line; ++line) at = text.find('\n', at) + 1;
  for (int column = 0; column < token.column; ++at) {
    column = text[at] == '\t' ? (column / 8 + 1) * 8 : column + 1;
  }
  return at;
}

bool EqualButForCase(const std::string& a, const std::string& b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

FieldWalk::FieldWalk(const pb::Descriptor* root, const std::string& text)
    : stream_(text.data(), static_cast<int>(text.size())),
      tokenizer_(&stream_, &silent_),
      open_{{root, ""}} {
  // As the parser reads it.
  tokenizer_.set_allow_f_after_float(true);
  tokenizer_.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  tokenizer_.set_require_space_after_number(false);
  tokenizer_.set_allow_multiline_strings(true);
}

bool FieldWalk::Next() {
  if (!tokenizer_.Next()) return false;
  const Token& token = tokenizer_.current();
  is_name_ = false;
  is_value_ = token.type != Tokenizer::TYPE_SYMBOL && value_follows_;
  if (token.type == Tokenizer::TYPE_SYMBOL) {
    TakeSymbol(token.text[0]);
  } else if (is_value_) {
    value_follows_ = open_.back().in_list;
  } else if (token.type == Tokenizer::TYPE_IDENTIFIER) {
    is_name_ = true;
    TakeName(token);
  }
  return true;
}

void FieldWalk::TakeSymbol(char symbol) {
  switch (symbol) {
    case ':':
      value_follows_ = true;
      return;
    case '[':
      value_follows_ = open_.back().in_list = true;
      return;
    case ']':
      value_follows_ = open_.back().in_list = false;
      return;
    case '{':
    case '<':
      open_.push_back({field() == nullptr ? nullptr : field()->message_type(), Path() + "."});
      value_follows_ = false;
      return;
    case '}':
    case '>':
      if (open_.size() > 1) open_.pop_back();
      value_follows_ = open_.back().in_list;
      if (!value_follows_) ForgetName();
      return;
    default:  // a sign, or what stands between fields
      return;
  }
}

void FieldWalk::TakeName(const Token& token) {
  Open& in = open_.back();
  in.name = token.text;
  in.name_line = token.line;
  in.field = in.type == nullptr ? nullptr : in.type->FindFieldByName(in.name);
}

void FieldWalk::ForgetName() {
  open_.back().name.clear();
  open_.back().field = nullptr;
}

std::string FieldWalk::Path() const { return open_.back().path + name(); }

std::optional<LostNumber> FindLostNumber(const pb::Descriptor* root, const std::string& text) {
  FieldWalk walk(root, text);
  while (walk.Next()) {
    const FieldWalk::Token& token = walk.token();
    if (token.type != Tokenizer::TYPE_FLOAT || walk.field() == nullptr) continue;
    const double value = Tokenizer::ParseFloat(token.text);
    const bool single = walk.field()->cpp_type() == pb::FieldDescriptor::CPPTYPE_FLOAT;
    if ((single ? static_cast<float>(value) : value) != 0 || !HasDigits(token.text)) continue;
    return LostNumber{walk.Path(), token.text, single ? "float" : "double", token.line};
  }
  return std::nullopt;
}

std::optional<Extent> FindSetting(const pb::Descriptor* root, const std::string& text, int line,
                                  int column) {
  const auto is_before = [&](const Tokenizer::Token& token) {
    return token.line < line || (token.line == line && token.column < column);
  };
  FieldWalk names(root, text);
  Tokenizer::Token name;
  while (names.Next() && is_before(names.token())) {
    if (names.is_name()) name = names.token();
  }
  if (name.text.empty()) return std::nullopt;
  FieldWalk walk(root, text);
  while (walk.Next() && (walk.token().line < name.line || walk.token().column < name.column ||
                         walk.token().text != name.text)) {
  }
  Tokenizer::Token last = walk.token();
  const size_t begin = OffsetOf(text, last);
  const auto extent = [&] { return Extent{begin, OffsetOf(text, last) + last.text.size()}; };
  int depth = 0;
  bool complete = false;
  while (walk.NextToken()) {
    const Tokenizer::Token& token = walk.token();
    const char symbol = token.type == Tokenizer::TYPE_SYMBOL ? token.text[0] : 0;
    const bool closes = symbol == '}' || symbol == ']' || symbol == '>';
    const bool goes_on = token.type == Tokenizer::TYPE_STRING || symbol == ',' || symbol == ';';
    if (complete && !goes_on) {
      if (!closes && token.type != Tokenizer::TYPE_IDENTIFIER) return std::nullopt;
      return extent();
    }
    if (closes && depth == 0) return extent();  // without a value
    if (closes) --depth;
    if (symbol == '{' || symbol == '[' || symbol == '<') ++depth;
    last = token;
    complete = depth == 0 && (symbol == 0 || closes || complete);
  }
  if (!complete) return std::nullopt;
  return extent();
}

std::string EnumsInTheirCase(const pb::Descriptor* root, const std::string& text) {
  std::string result = text;
  FieldWalk walk(root, text);
  while (walk.Next()) {
    const FieldWalk::Token& token = walk.token();
    if (!walk.is_value() || walk.field() == nullptr || walk.field()->enum_type() == nullptr)
      continue;
    for (int i = 0; i < walk.field()->enum_type()->value_count(); ++i) {
      const std::string& name = walk.field()->enum_type()->value(i)->name();
      if (EqualButForCase(name, token.text)) {
        result.replace(OffsetOf(text, token), name.size(), name);
      }
    }
  }
  return result;
}

}  // namespace muster
