// Which setting a place in a text belongs to. The text format's parser does not say it: its
// complaints name at most a field, not the message that this field is of.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <optional>
#include <string>
#include <vector>

namespace muster {

// Walks through a text in protobuf's text format, token by token, and knows the field that each
// belongs to. It understands any text: of one that is wrong it knows what it can.
class FieldWalk {
 public:
  using Token = google::protobuf::io::Tokenizer::Token;

  // Both must outlive the walk.
  FieldWalk(const google::protobuf::Descriptor* root, const std::string& text);

  bool Next();  // false: that was the last one
  // The same without finding out what it belongs to. Next must not follow.
  bool NextToken() { return tokenizer_.Next(); }
  const Token& token() { return tokenizer_.current(); }
  // Whether the token is the field's value, or one of a list.
  bool is_value() const { return is_value_; }
  bool is_name() const { return is_name_; }

  // Of the last name that was read, "" after the end of a message; the field is null where the
  // message has none of this name.
  const std::string& name() const { return open_.back().name; }
  const google::protobuf::FieldDescriptor* field() const { return open_.back().field; }
  int name_line() const { return open_.back().name_line; }  // counted from 0
  std::string Path() const;                                 // "optimizer.momentum", without indices

 private:
  // Of a message that is not closed yet.
  struct Open {
    const google::protobuf::Descriptor* type;
    std::string path;
    std::string name = {};  // the last one in it
    const google::protobuf::FieldDescriptor* field = nullptr;
    int name_line = -1;
    bool in_list = false;  // between [ and ]
  };
  struct Silent : google::protobuf::io::ErrorCollector {
    void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  };

  void TakeSymbol(char symbol);
  void TakeName(const Token& token);
  void ForgetName();

  Silent silent_;
  google::protobuf::io::ArrayInputStream stream_;
  google::protobuf::io::Tokenizer tokenizer_;
  std::vector<Open> open_;
  bool value_follows_ = false;  // after "name:"
  bool is_value_ = false, is_name_ = false;
};

// A number that is not written as 0, but so small that it would become 0.
struct LostNumber {
  std::string path, text, type;  // "learning_rate.base", "1e-500", "double"
  int line = 0;                  // counted from 0
};
// The first one of a text that can be parsed.
std::optional<LostNumber> FindLostNumber(const google::protobuf::Descriptor* root,
                                         const std::string& text);

// The bytes of a setting in a text, its name and its value.
struct Extent {
  size_t begin, end;
};
// Of the last setting whose name begins before this place. Nothing if its end is not clear.
std::optional<Extent> FindSetting(const google::protobuf::Descriptor* root, const std::string& text,
                                  int line, int column);

// The text with the names of enums, wherever they are values, in the case that the parser wants.
std::string EnumsInTheirCase(const google::protobuf::Descriptor* root, const std::string& text);

}  // namespace muster
