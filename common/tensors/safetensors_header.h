// What stands before the bytes of tensors in a file of the safetensors format
// (https://huggingface.co/docs/safetensors): eight bytes with the length N of a JSON text, the
// text, and then the tensors, without gaps, little-endian, the last index fastest:
//
//   {"__metadata__": {"step": "100"}, "conv1.weight": {"dtype": "F32", "shape": [64, 3, 5, 5],
//    "data_offsets": [0, 19200]}, ...}
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The element types, by the format's names. All of them can be listed and copied as bytes; what can
// be read as numbers, the reader says.
enum class TensorType {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64,
};

const char* Name(TensorType type);  // "F32"
size_t BytesOf(TensorType type);    // of an element

struct StoredTensor {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;   // empty: one number
  uint64_t begin = 0, end = 0;  // its bytes, counted from the first tensor's first

  uint64_t bytes() const { return end - begin; }
  uint64_t elements() const { return bytes() / BytesOf(type); }
  std::string ShapeString() const;  // [64,3,5,5]
};

struct SafetensorsHeader {
  // Longer ones are refused, as every reader of the format does.
  static constexpr uint64_t kMostTextBytes = 100'000'000;

  std::vector<StoredTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // where the first tensor begins in the file

  // Null if there is none of this name.
  const StoredTensor* Find(std::string_view name) const;
  uint64_t file_bytes() const { return data_begin + (tensors.empty() ? 0 : tensors.back().end); }
};

// Gives each tensor its place, those of large elements first, so that each is aligned, otherwise in
// the order given. The names differ; `begin` and `end` are set here. The first tensor begins at a
// multiple of `alignment`, a multiple of 8.
SafetensorsHeader LayOutSafetensors(std::vector<StoredTensor> tensors,
                                    std::map<std::string, std::string> metadata,
                                    size_t alignment = 8);

// The first data_begin bytes of the file.
std::string HeaderBytes(const SafetensorsHeader& header);

// The length of the JSON text, from the first 8 bytes of a file of `file_bytes` bytes. `file` names
// it in errors. Throws Error(kData) if it cannot be a safetensors file.
uint64_t SafetensorsTextBytes(const std::string& file, std::string_view first_bytes,
                              uint64_t file_bytes);

// Reads the JSON text. Throws Error(kData) that names the file and what is wrong with it: text that
// is not JSON, twice the same name, unknown types, shapes that do not fit their bytes, tensors that
// overlap, leave gaps, are not aligned or reach beyond the file, bytes that belong to none.
SafetensorsHeader ParseSafetensorsHeader(const std::string& file, std::string_view text,
                                         uint64_t file_bytes);

}  // namespace muster
