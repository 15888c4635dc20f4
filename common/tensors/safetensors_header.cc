#include "common/tensors/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/text.h"

namespace muster {
namespace {

struct Entry {
  const char* name;
  size_t bytes;
};

// In the order of TensorType.
constexpr std::array<Entry, 15> kEntries = {{{"BOOL", 1},
                                             {"U8", 1},
                                             {"I8", 1},
                                             {"F8_E5M2", 1},
                                             {"F8_E4M3", 1},
                                             {"U16", 2},
                                             {"I16", 2},
                                             {"F16", 2},
                                             {"BF16", 2},
                                             {"U32", 4},
                                             {"I32", 4},
                                             {"F32", 4},
                                             {"U64", 8},
                                             {"I64", 8},
                                             {"F64", 8}}};
static_assert(kEntries.size() == static_cast<size_t>(TensorType::kF64) + 1);

const Entry& EntryOf(TensorType type) { return kEntries[static_cast<size_t>(type)]; }

std::optional<TensorType> TensorTypeOf(std::string_view name) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (name == kEntries[i].name) return static_cast<TensorType>(i);
  }
  return std::nullopt;
}

std::string TensorTypeNames() {
  std::array<const char*, kEntries.size()> names{};
  for (size_t i = 0; i < kEntries.size(); ++i) names[i] = kEntries[i].name;
  return Join(names, ", ");
}

using nlohmann::json;

static_assert(std::endian::native == std::endian::little);

constexpr size_t kLengthBytes = 8;
constexpr const char* kMetadata = "__metadata__";

// Throws errors about an invalid header that include the file's name.
class Complaint {
 public:
  explicit Complaint(const std::string& file) : file_(file) {}

  template <typename... Args>
  [[noreturn]] void Say(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ExitCode::kData, "{}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
  }
  // Throws an error about one tensor.
  template <typename... Args>
  [[noreturn]] void Of(const std::string& name, fmt::format_string<Args...> format,
                       Args&&... args) const {
    Say("tensor {}: {}", Shown(name), fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const std::string& file_;
};

// Makes a JSON tree. Refuses deep nesting, and duplicate keys, of which json::parse would silently
// keep the last one. (Its callback looks at all tensors again after each of them.)
class TreeMaker final : public nlohmann::json_sax<json> {
 public:
  explicit TreeMaker(const Complaint& complaint) : complaint_(complaint) {}

  json Take() { return std::move(tree_); }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON texts have none
  bool start_object(size_t) override { return Open(json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    const auto [at, added] = open_.back()->emplace(name, nullptr);
    if (!added) complaint_.Say("its header has {} twice", Shown(name));
    member_ = &*at;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const json::exception&) override {
    complaint_.Say("is damaged, or not a safetensors file: its header is not valid JSON at byte {}",
                   kLengthBytes + at);
  }

 private:
  bool Put(json value) {
    (void)Place(std::move(value));
    return true;
  }
  bool Open(json value) {
    constexpr size_t kMostNesting = 4;
    if (open_.size() == kMostNesting)
      complaint_.Say("its header is nested more than {} levels deep", kMostNesting);
    open_.push_back(Place(std::move(value)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  json* Place(json value) {
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    json& place = open_.empty() ? tree_ : *member_;
    place = std::move(value);
    return &place;
  }

  const Complaint& complaint_;
  json tree_;
  std::vector<json*> open_;  // arrays and objects, outermost first
  json* member_ = nullptr;   // the place for the value of the last key
};

uint64_t WholeNumber(const json& value, const std::string& name, const char* what,
                     const Complaint& complaint) {
  if (!value.is_number_unsigned()) {
    complaint.Of(name, "{} is {}, expected a non-negative whole number", what,
                 Shown(JsonText(value)));
  }
  return value.get<uint64_t>();
}

const json& Member(const json& entry, const std::string& name, const char* key,
                   const Complaint& complaint) {
  const auto found = entry.find(key);
  if (found == entry.end()) complaint.Of(name, "has no {}", key);
  return *found;
}

const json& Array(const json& entry, const std::string& name, const char* key,
                  const Complaint& complaint) {
  const json& member = Member(entry, name, key, complaint);
  if (!member.is_array()) complaint.Of(name, "{} is not a list", key);
  return member;
}

TensorType ParseType(const json& entry, const std::string& name, const Complaint& complaint) {
  const json& dtype = Member(entry, name, "dtype", complaint);
  const auto type =
      dtype.is_string() ? TensorTypeOf(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!type) {
    complaint.Of(name, "dtype is {}, expected one of {}", Shown(JsonText(dtype)),
                 TensorTypeNames());
  }
  return *type;
}

StoredTensor ParseTensor(const std::string& name, const json& entry, const Complaint& complaint) {
  if (!entry.is_object()) complaint.Of(name, "its entry is not an object");
  StoredTensor tensor{.name = name, .type = ParseType(entry, name, complaint)};
  uint64_t bytes = BytesOf(tensor.type);
  bool too_large = false;
  for (const json& size : Array(entry, name, "shape", complaint)) {
    const uint64_t value = WholeNumber(size, name, "shape", complaint);
    too_large = too_large || value > INT64_MAX || __builtin_mul_overflow(bytes, value, &bytes);
    tensor.shape.push_back(static_cast<int64_t>(value));
  }
  if (too_large) complaint.Of(name, "shape {} is too large", tensor.ShapeString());
  const json& offsets = Array(entry, name, "data_offsets", complaint);
  if (offsets.size() != 2)
    complaint.Of(name, "data_offsets has {} numbers, expected 2", offsets.size());
  tensor.begin = WholeNumber(offsets[0], name, "data_offsets", complaint);
  tensor.end = WholeNumber(offsets[1], name, "data_offsets", complaint);
  if (tensor.end < tensor.begin) {
    complaint.Of(name, "ends at byte {}, before its beginning at byte {}", tensor.end,
                 tensor.begin);
  }
  if (tensor.bytes() != bytes) {
    complaint.Of(name, "has {} bytes, but {} of shape {} needs {}", tensor.bytes(),
                 Name(tensor.type), tensor.ShapeString(), bytes);
  }
  return tensor;
}

void ParseMetadata(const json& entry, SafetensorsHeader& header, const Complaint& complaint) {
  if (!entry.is_object()) complaint.Say("its {} is not an object", kMetadata);
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) complaint.Say("{} {} is not a string", kMetadata, Shown(key));
    header.metadata[key] = value.get<std::string>();
  }
}

// Checks the positions of the tensors, which must be sorted. Each must begin where the previous one
// ends, and the last one must end with the file.
void CheckPlaces(const SafetensorsHeader& header, uint64_t file_bytes, const Complaint& complaint) {
  const uint64_t available = file_bytes - header.data_begin;
  const StoredTensor* before = nullptr;
  for (const StoredTensor& tensor : header.tensors) {
    const uint64_t expected = before == nullptr ? 0 : before->end;
    if (tensor.begin < expected) {
      complaint.Say("tensors {} and {} overlap: one ends at byte {}, the other begins at {}",
                    Shown(before->name), Shown(tensor.name), expected, tensor.begin);
    }
    if (tensor.begin > expected) {
      complaint.Say("bytes {} to {}, before tensor {}, belong to no tensor", expected, tensor.begin,
                    Shown(tensor.name));
    }
    if (tensor.end > available) {
      complaint.Of(tensor.name, "ends at byte {}, but there are only {}: the file is truncated",
                   tensor.end, available);
    }
    before = &tensor;
  }
  const uint64_t end = before == nullptr ? 0 : before->end;
  if (end < available) {
    complaint.Say("{} bytes after the last tensor belong to no tensor", available - end);
  }
}

void NotePlaces(SafetensorsHeader& header) {
  for (size_t i = 0; i < header.tensors.size(); ++i) header.places[header.tensors[i].name] = i;
}

std::string TextOf(const SafetensorsHeader& header) {
  // Each entry by itself, because a JSON object would sort the tensors.
  std::string text;
  const auto add = [&](const std::string& name, const std::string& entry) {
    text += (text.empty() ? "{" : ",") + JsonText(json(ValidUtf8(name))) + ":" + entry;
  };
  if (!header.metadata.empty()) {
    json metadata;
    for (const auto& [key, value] : header.metadata) metadata[ValidUtf8(key)] = ValidUtf8(value);
    add(kMetadata, JsonText(metadata));
  }
  for (const StoredTensor& tensor : header.tensors) {
    add(tensor.name,
        fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", Name(tensor.type),
                    tensor.ShapeString(), tensor.begin, tensor.end));
  }
  return text.empty() ? "{}" : text + "}";
}

}  // namespace

const char* Name(TensorType type) { return EntryOf(type).name; }

size_t BytesOf(TensorType type) { return EntryOf(type).bytes; }

std::string StoredTensor::ShapeString() const { return "[" + Join(shape, ",") + "]"; }

const StoredTensor* SafetensorsHeader::Find(std::string_view name) const {
  const auto found = places.find(name);
  return found == places.end() ? nullptr : &tensors[found->second];
}

SafetensorsHeader LayOutSafetensors(std::vector<StoredTensor> tensors,
                                    std::map<std::string, std::string> metadata, size_t alignment) {
  MUSTER_CHECK(alignment > 0 && alignment % 8 == 0);
  SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
  std::ranges::stable_sort(header.tensors, std::greater(),
                           [](const StoredTensor& tensor) { return BytesOf(tensor.type); });
  uint64_t at = 0;
  for (StoredTensor& tensor : header.tensors) {
    uint64_t bytes = BytesOf(tensor.type);
    for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
    tensor.begin = at;
    tensor.end = at += bytes;
  }
  const size_t unpadded = kLengthBytes + TextOf(header).size();
  header.data_begin = (unpadded + alignment - 1) / alignment * alignment;
  NotePlaces(header);
  return header;
}

std::string HeaderBytes(const SafetensorsHeader& header) {
  const std::string text = TextOf(header);
  const uint64_t length = header.data_begin - kLengthBytes;
  MUSTER_CHECK(text.size() <= length);
  std::string bytes(header.data_begin, ' ');  // padding, as the format requires
  std::memcpy(bytes.data(), &length, kLengthBytes);
  std::memcpy(bytes.data() + kLengthBytes, text.data(), text.size());
  return bytes;
}

uint64_t SafetensorsTextBytes(const std::string& file, std::string_view first_bytes,
                              uint64_t file_bytes) {
  const Complaint complaint(file);
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes) {
    complaint.Say(
        "is truncated, or not a safetensors file: expected 8 bytes and a header, got {} bytes",
        file_bytes);
  }
  uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), kLengthBytes);
  if (length > SafetensorsHeader::kMostTextBytes) {
    complaint.Say(
        "is damaged, or not a safetensors file: expected a header of at most {} bytes, got {}",
        SafetensorsHeader::kMostTextBytes, length);
  }
  if (length > file_bytes - kLengthBytes) {
    complaint.Say("is truncated, or not a safetensors file: expected a header of {} bytes, got {}",
                  length, file_bytes - kLengthBytes);
  }
  return length;
}

SafetensorsHeader ParseSafetensorsHeader(const std::string& file, std::string_view text,
                                         uint64_t file_bytes) {
  const Complaint complaint(file);
  TreeMaker maker(complaint);
  ReadJson(text, maker);  // any error throws
  const json tree = maker.Take();
  if (!tree.is_object())
    complaint.Say("is not a safetensors file: its header is not a JSON object");
  SafetensorsHeader header{.data_begin = kLengthBytes + text.size()};
  for (const auto& [name, entry] : tree.items()) {
    if (name == kMetadata) {
      ParseMetadata(entry, header, complaint);
    } else {
      header.tensors.push_back(ParseTensor(name, entry, complaint));
    }
  }
  // A tensor without elements may begin at the same position as another one.
  std::ranges::sort(header.tensors, [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  CheckPlaces(header, file_bytes, complaint);
  NotePlaces(header);
  return header;
}

}  // namespace muster
