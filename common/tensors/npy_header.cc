#include "common/tensors/npy_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "common/base/text.h"

namespace muster {
namespace {

// In the order of TensorType.
constexpr std::array kNumpyTypes = {"|b1", "|u1", "|i1", "",    "",    "<u2", "<i2", "<f2",
                                    "",    "<u4", "<i4", "<f4", "<u8", "<i8", "<f8"};
static_assert(kNumpyTypes.size() == static_cast<size_t>(TensorType::kF64) + 1);

constexpr std::array kLongNames = {"bool",   "uint8",   "int8",    "",      "",
                                   "uint16", "int16",   "float16", "",      "uint32",
                                   "int32",  "float32", "uint64",  "int64", "float64"};
static_assert(kLongNames.size() == kNumpyTypes.size());

class NpyHeaderReader {
 public:
  explicit NpyHeaderReader(std::string_view text) : rest_(text) {}

  // Returns nothing if the text is not a valid header.
  std::optional<NpyHeader> Read() {
    NpyHeader header;
    std::set<std::string> keys;
    bool good = Take('{');
    while (good && !Take('}')) {
      const std::string key = TakeText().value_or("");
      good = Take(':') && keys.insert(key).second && TakeValue(key, header);
      good = good && (Take(',') || Next() == '}');
    }
    return good && keys.size() == 3 && Next() == '\0' && rest_.empty() ? std::optional(header)
                                                                       : std::nullopt;
  }

 private:
  // The next character that is no white space; '\0' at the end.
  char Next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
    return rest_.empty() ? '\0' : rest_[0];
  }
  bool Take(char wanted) {
    if (Next() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    (void)Next();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  // Python 2 may have written u'text'. No key and no type has an escape.
  std::optional<std::string> TakeText() {
    (void)Take('u');
    const char quote = Next();
    const size_t end = quote == '\'' || quote == '"' ? rest_.find(quote, 1) : rest_.npos;
    if (end == rest_.npos) return std::nullopt;
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool TakeValue(const std::string& key, NpyHeader& header) {
    if (key == "descr") return TakeType(header.type);
    if (key == "shape") return TakeShape(header.shape);
    if (key != "fortran_order") return false;
    header.fortran = TakeWord("True");
    return header.fortran || TakeWord("False");
  }

  // A structured type is a list of tuples.
  bool TakeType(std::string& type) {
    if (Next() != '[') {
      const std::optional<std::string> text = TakeText();
      type = text.value_or("");
      return text.has_value();
    }
    type = "a structured type";
    int depth = 0;
    do {
      const char next = Next();
      if (next == '\'' || next == '"') {
        if (!TakeText()) return false;
        continue;
      }
      if (next == '\0') return false;
      if (next == '[' || next == '(') ++depth;
      if (next == ']' || next == ')') --depth;
      rest_.remove_prefix(1);
    } while (depth > 0);
    return true;
  }

  bool TakeShape(std::vector<int64_t>& shape) {
    bool good = Take('(');
    while (good && !Take(')')) {
      int64_t extent = 0;
      (void)Next();
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      good = error == std::errc() && extent >= 0;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      (void)Take('L');
      shape.push_back(extent);
      good = good && (Take(',') || Next() == ')');
    }
    return good;
  }

  std::string_view rest_;
};

// A type as NumPy would write it: "<f4", "|u1". A single byte has no order, "=" and nothing stand
// for the machine's order, and "float32" is "<f4".
std::string UsualType(std::string type) {
  const auto named = std::ranges::find(kLongNames, std::string_view(type));
  if (!type.empty() && named != kLongNames.end())
    return kNumpyTypes[static_cast<size_t>(named - kLongNames.begin())];
  if (type == "?") return "|b1";
  if (type.size() == 2) type.insert(0, "<");
  if (type.starts_with('=')) type[0] = '<';
  if (type.size() == 3 && type[2] == '1' &&
      std::string_view("biu").find(type[1]) != std::string_view::npos)
    type[0] = '|';
  return type;
}

}  // namespace

std::optional<NpyHeader> ReadNpyHeader(std::string_view text) {
  return NpyHeaderReader(text).Read();
}

const char* NumpyType(TensorType type) { return kNumpyTypes[static_cast<size_t>(type)]; }

const char* NumpyName(TensorType type) { return kLongNames[static_cast<size_t>(type)]; }

std::optional<TensorType> TypeOfNumpy(const std::string& numpy_type) {
  const std::string usual = UsualType(numpy_type);
  const auto found = std::ranges::find(kNumpyTypes, std::string_view(usual));
  if (usual.empty() || found == kNumpyTypes.end()) return std::nullopt;
  return static_cast<TensorType>(found - kNumpyTypes.begin());
}

std::string AdviceOnNumpyType(const std::string& type, const std::string& name) {
  if (type.starts_with('>')) {
    return fmt::format("big-endian numbers: store {0}.astype({0}.dtype.newbyteorder(\"<\"))", name);
  }
  if (type.starts_with("|O")) {
    return fmt::format(
        "an object array, which only Python can read: store numbers of one type, "
        "such as {}.astype(\"float32\"), with all rows of the same length",
        name);
  }
  if (type.starts_with("<U") || type.starts_with("|S")) {
    return fmt::format(
        "text: store numbers; numpy.unique({}, return_inverse=True) numbers the class names", name);
  }
  return fmt::format("the type {}: store {}.astype(\"float32\")", Shown(type), name);
}

}  // namespace muster
