// What is wrong with a text that protobuf's parser refuses, in words for a person.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>

#include <string>
#include <vector>

#include "common/config/text_fields.h"

namespace muster {

// Turns the parser's first complaint into ours.
class TextErrors : public google::protobuf::io::ErrorCollector {
 public:
  // Both must outlive it.
  TextErrors(const google::protobuf::Descriptor* root, const std::string& text)
      : root_(root), text_(text) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override;
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}

  const std::string& first() const { return first_; }
  int line() const { return line_; }
  // The setting that the complaint is about, "" if that is not known.
  const std::string& key() const { return key_; }
  // Replaces that setting in the text by spaces. False if it is not known where it ends.
  bool BlankOut(std::string& text) const;

 private:
  std::string Translate(int column, const std::string& message);

  const google::protobuf::Descriptor* root_;
  const std::string& text_;
  std::string first_;
  std::string key_;
  int line_ = -1;                      // of the setting
  int error_line_ = -1, column_ = -1;  // of the parser, which may be past it
  bool one_setting_ = false;  // the complaint is about a setting, not about the text around it
};

// The keys that a message may have.
std::vector<std::string> FieldNames(const google::protobuf::Descriptor* type);

std::string LostNumberText(const LostNumber& lost);

}  // namespace muster
