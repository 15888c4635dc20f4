#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <utility>
#include <vector>

#include "common/base/leading_zero.h"
#include "common/config/text_format.h"

namespace muster {

namespace pb = google::protobuf;
using pb::io::Tokenizer;

std::string Shorten(const std::string& text) {
  constexpr size_t kKept = 200;  // at each end
  if (text.size() <= 2 * kKept) return text;
  return text.substr(0, kKept) + "..." + text.substr(text.size() - kKept);
}

void VisitNames(const std::string& text, const std::function<bool(const SettingName&)>& visit) {
  struct : pb::io::ErrorCollector {
    void AddError(int, pb::io::ColumnNumber, const std::string&) override {}
  } silent;
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  Tokenizer tokenizer(&stream, &silent);
  tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  tokenizer.set_allow_f_after_float(true);
  tokenizer.set_require_space_after_number(false);
  tokenizer.set_allow_multiline_strings(true);
  std::vector<std::string> open;  // paths of the enclosing messages
  SettingName name;
  bool in_value = false, in_list = false;
  size_t at = 0;  // the offset of `line` and `column`
  int line = 0, column = 0;
  const auto offset_of = [&](const Tokenizer::Token& token) {
    for (; line < token.line; ++line, column = 0) at = text.find('\n', at) + 1;
    for (; column < token.column; ++at) {
      column = text[at] == '\t' ? (column / 8 + 1) * 8 : column + 1;
    }
    return at;
  };
  while (tokenizer.Next() && open.size() <= kMostTextNesting) {
    const Tokenizer::Token& token = tokenizer.current();
    const char symbol = token.type == Tokenizer::TYPE_SYMBOL ? token.text[0] : '\0';
    if (symbol == '{' || symbol == '<') {
      if (name.line >= 0 && !visit(name)) return;
      open.push_back(std::exchange(name, {}).path);
      in_value = in_list = false;
    } else if (symbol == '}' || symbol == '>') {
      if (name.line >= 0 && !visit(name)) return;
      name = {};
      if (!open.empty()) name.path = open.back();  // for the next message of a list
      if (!open.empty()) open.pop_back();
      in_value = false;
    } else if (symbol == ':') {
      in_value = name.value.empty();
    } else if (in_value) {
      if (name.value.empty()) name.value_offset = offset_of(token);
      if (token.type == Tokenizer::TYPE_INTEGER && HasLeadingZero(token.text))
        name.leading_zeros.push_back(offset_of(token));
      if (name.value.size() < 200) name.value += Shorten(token.text);
      if (symbol == '[' || symbol == ']') in_list = symbol == '[';
      in_value = in_list || symbol == '-';
    } else if (token.type == Tokenizer::TYPE_IDENTIFIER) {
      if (name.line >= 0 && !visit(name)) return;
      const std::string before = open.empty() ? "" : open.back() + ".";
      name = {before + Shorten(token.text), "", token.line, token.column, offset_of(token), 0, {}};
    }
  }
  if (name.line >= 0) visit(name);
}

SettingName NameBefore(const std::string& text, int line, int column) {
  SettingName last;
  VisitNames(text, [&](const SettingName& name) {
    const bool before = name.line < line || (name.line == line && name.column < column);
    if (before) last = name;
    return before;
  });
  return last;
}

}  // namespace muster
