#include "common/config/text_format.h"

#include <fmt/core.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/pattern.h"
#include "common/base/resource_limits.h"
#include "common/config/number_range.h"
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

std::vector<std::string> FieldNames(const pb::Descriptor* type) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(type->field_count()));
  for (int i = 0; i < type->field_count(); ++i) names.push_back(type->field(i)->name());
  return names;
}

std::string Suggest(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string nearest = NearestName(name, candidates);
  const std::string all = fmt::format("expected one of {}", Join(candidates, ", "));
  return nearest.empty() ? all : fmt::format("did you mean \"{}\"? ({})", nearest, all);
}

// Turns the parser's first complaint into ours.
class Translator : public pb::io::ErrorCollector {
 public:
  // Both must outlive it.
  Translator(const pb::Descriptor* root, const std::string& text) : root_(root), text_(text) {}

  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (!first_.empty()) return;
    line_ = line;
    first_ = Translate(column, Shorten(message));
  }
  void AddWarning(int, pb::io::ColumnNumber, const std::string&) override {}

  const std::string& first() const { return first_; }
  int line() const { return line_; }

 private:
  std::string Translate(int column, const std::string& message);

  const pb::Descriptor* root_;
  const std::string& text_;
  std::string first_;
  int line_ = -1;
};

std::string Translator::Translate(int column, const std::string& message) {
  using Match = std::vector<std::string>;
  const pb::DescriptorPool* pool = root_->file()->pool();
  if (const Match match =
          Search(R"re(^Message type "([^"]+)" has no field named "([^"]+)")re", message);
      !match.empty()) {
    const pb::Descriptor* type = pool->FindMessageTypeByName(match[1]);
    if (type != nullptr) {
      return fmt::format("{}{}: unknown key; {}", PathOf(root_, type), match[2],
                         Suggest(match[2], FieldNames(type)));
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
    return fmt::format("{}: unknown value {}; {}", match[2], match[1], Suggest(match[1], values));
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

// Splits "a.b[c].d" at the dots outside of brackets.
std::vector<std::string> SplitPath(const std::string& path) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : path) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == '.' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// Index of the element that "[2]" or "[conv1]" means.
int FindElement(pb::Message& parent, const pb::FieldDescriptor* field, const std::string& which,
                const std::string& origin) {
  const pb::Reflection* reflection = parent.GetReflection();
  const int size = reflection->FieldSize(parent, field);
  if (!which.empty() &&
      std::all_of(which.begin(), which.end(), [](unsigned char c) { return std::isdigit(c); })) {
    const long index = which.size() < 9 ? std::stol(which) : size;
    if (index < size) return static_cast<int>(index);
    throw Error(ExitCode::kUsage, "{}: {}[{}]: there are {} elements, counted from 0", origin,
                field->name(), which, size);
  }
  std::vector<std::string> names;
  if (const pb::FieldDescriptor* name = field->message_type()->FindFieldByName("name")) {
    for (int i = 0; i < size; ++i) {
      const pb::Message& element = reflection->GetRepeatedMessage(parent, field, i);
      names.push_back(element.GetReflection()->GetString(element, name));
      if (names.back() == which) return i;
    }
  }
  throw Error(ExitCode::kUsage, "{}: {}[{}]: no element has this name; {}", origin, field->name(),
              which, Suggest(which, names));
}

std::string AsFieldText(const pb::FieldDescriptor* field, const std::string& value) {
  std::string text = value;
  if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING && !field->is_repeated() &&
      (value.empty() || (value.front() != '"' && value.front() != '\''))) {
    text = "\"";
    for (const unsigned char c : value) {
      if (c == '"' || c == '\\' || c < 32) {
        text += fmt::format("\\{:03o}", c);
      } else {
        text += static_cast<char>(c);
      }
    }
    text += "\"";
  }
  return fmt::format("{}{} {}", field->name(),
                     field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE ? "" : ":", text);
}

std::string LostText(const LostNumber& lost) {
  return fmt::format("{}: {} is too small for a {}, and would become 0: expected 0, or more",
                     lost.path, Shorten(lost.text), lost.type);
}

}  // namespace

// Damerau and Levenshtein's distance, in half edits: swapped neighbours, the most common slip, cost
// less than another letter.
static size_t Distance(const std::string& a, const std::string& b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = 2 * (i + j);
        continue;
      }
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 2, d[i][j - 1] + 2, d[i - 1][j - 1] + (same ? 0 : 2)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string NearestName(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(4, name.size());  // half of the name may be wrong
  for (const std::string& candidate : candidates) {
    const size_t distance = Distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

void ParseTextFile(const std::string& file, const std::string& prefix, pb::Message& message,
                   Locations& locations) {
  std::string text = ReadFile(file);
  RequireText(file, text);
  ParseText(text, file, prefix, message, locations);
}

void ParseText(const std::string& text, const std::string& file, const std::string& prefix,
               pb::Message& message, Locations& locations) {
  Translator errors(message.GetDescriptor(), text);
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
                prefix.empty() ? "" : prefix + ".", LostText(*lost));
  }
  NoteLocations(message, &tree, file, prefix.empty() ? "" : prefix + ".", locations);
}

namespace {

// The parser's words for these are about its tokens: "Expected integer, got: -".
void RefuseNumber(const pb::FieldDescriptor* field, const std::string& walked,
                  const std::string& value, const std::string& origin) {
  if (field->is_repeated() || !IsNumber(*field)) return;
  throw Error(ExitCode::kUsage, "{}: {}{}: expected {}, got {}", origin, walked, field->name(),
              RangeText(*field), value.empty() ? "nothing" : value);
}

// Two settings of the command line that exclude each other: the later one would silently win. One
// of the file is meant to be replaced.
void RefuseSecondOfOneof(const pb::FieldDescriptor* field, const std::string& walked,
                         const std::string& origin, const Locations& locations) {
  const pb::OneofDescriptor* const oneof = field->real_containing_oneof();
  if (oneof == nullptr) return;
  for (int i = 0; i < oneof->field_count(); ++i) {
    const pb::FieldDescriptor* const other = oneof->field(i);
    const auto found = locations.find(walked + other->name());
    if (other == field || found == locations.end() || !found->second.starts_with("--")) continue;
    throw Error(ExitCode::kUsage, "{}: excludes {}: expected exactly one of {}, {}", origin,
                found->second, walked + other->name(), walked + field->name());
  }
}

}  // namespace

void SetField(pb::Message& config, const std::string& path, const std::string& value,
              const std::string& origin, Locations& locations) {
  pb::Message* at = &config;
  const std::vector<std::string> parts = SplitPath(path);
  std::string walked;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string name = parts[i], which;
    const size_t bracket = name.find('[');
    if (bracket != std::string::npos && name.back() == ']') {
      which = name.substr(bracket + 1, name.size() - bracket - 2);
      name.resize(bracket);
    }
    const pb::FieldDescriptor* field = at->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) {
      throw Error(ExitCode::kUsage, "{}: {}{}: unknown key; {}", origin, walked, name,
                  Suggest(name, FieldNames(at->GetDescriptor())));
    }
    const bool last = i + 1 == parts.size();
    if (last && bracket == std::string::npos) {
      pb::TextFormat::Parser parser;
      // On a command line the names of an enum may be written in any case.
      const std::string text = EnumsInTheirCase(at->GetDescriptor(), AsFieldText(field, value));
      Translator errors(at->GetDescriptor(), text);
      parser.RecordErrorsTo(&errors);
      std::unique_ptr<pb::Message> fresh(at->New());
      if (!parser.ParseFromString(text, fresh.get())) {
        RefuseNumber(field, walked, value, origin);
        throw Error(ExitCode::kUsage, "{}: {}{}", origin, walked, errors.first());
      }
      if (const auto lost = FindLostNumber(at->GetDescriptor(), text)) {
        throw Error(ExitCode::kUsage, "{}: {}{}", origin, walked, LostText(*lost));
      }
      std::vector<const pb::FieldDescriptor*> set;
      fresh->GetReflection()->ListFields(*fresh, &set);
      // A value such as "5 seed: 7" would smuggle in other keys.
      if (set.size() > 1 || (set.size() == 1 && set[0] != field)) {
        throw Error(ExitCode::kUsage, "{}: expected one value for {}", origin, path);
      }
      RefuseSecondOfOneof(field, walked, origin, locations);
      at->GetReflection()->ClearField(at, field);
      at->MergeFrom(*fresh);
      const std::string full = walked + name;
      for (auto it = locations.lower_bound(full);
           it != locations.end() && it->first.starts_with(full);) {
        const char next = it->first.size() == full.size() ? '.' : it->first[full.size()];
        it = next == '.' || next == '[' ? locations.erase(it) : std::next(it);
      }
      locations[full] = origin;
      return;
    }
    if (field->message_type() == nullptr) {
      throw Error(ExitCode::kUsage, "{}: {}{} has no parts to set", origin, walked, name);
    }
    if (field->is_repeated()) {
      if (bracket == std::string::npos || last) {
        throw Error(ExitCode::kUsage, "{}: {}{} is a list: expected {}[NAME].KEY", origin, walked,
                    name, name);
      }
      const int element = FindElement(*at, field, which, origin);
      walked += fmt::format("{}[{}].", name, element);
      at = at->GetReflection()->MutableRepeatedMessage(at, field, element);
    } else {
      if (bracket != std::string::npos) {
        throw Error(ExitCode::kUsage, "{}: {}{} is not a list", origin, walked, name);
      }
      walked += name + ".";
      at = at->GetReflection()->MutableMessage(at, field);
    }
  }
}

}  // namespace muster
