// The header of a safetensors file (https://huggingface.co/docs/safetensors). The file consists of
// eight bytes with the length N of a JSON text, the text itself, and the tensors without gaps,
// little-endian, with the last index fastest:
//
//   {"__metadata__": {"step": "100"}, "conv1.weight": {"dtype": "F32", "shape": [64, 3, 5, 5],
//    "data_offsets": [0, 19200]}, ...}
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The element types, under the format's names. All can be listed and copied as bytes; see
// SafetensorsReader for those that can be read as numbers.
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
  std::vector<int64_t> shape;   // empty: a scalar
  uint64_t begin = 0, end = 0;  // its bytes, relative to the start of the first tensor

  uint64_t bytes() const { return end - begin; }
  uint64_t elements() const { return bytes() / BytesOf(type); }
  std::string ShapeString() const;  // [64,3,5,5]
};

struct SafetensorsHeader {
  // Longer headers are refused, as other readers of the format do.
  static constexpr uint64_t kMostTextBytes = 100'000'000;

  std::vector<StoredTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // the position of the first tensor in the file
  std::map<std::string, size_t, std::less<>> places;  // in `tensors`, by name

  // Returns null if there is no tensor with this name.
  const StoredTensor* Find(std::string_view name) const;
  uint64_t file_bytes() const { return data_begin + (tensors.empty() ? 0 : tensors.back().end); }
};

// Places the tensors by setting their `begin` and `end`. Tensors with the largest elements come
// first so that all are aligned; otherwise the given order is kept. Names must be unique. The first
// tensor begins at a multiple of `alignment`, which must be a multiple of 8.
SafetensorsHeader LayOutSafetensors(std::vector<StoredTensor> tensors,
                                    std::map<std::string, std::string> metadata,
                                    size_t alignment = 8);

// Returns the first data_begin bytes of the file.
std::string HeaderBytes(const SafetensorsHeader& header);

// Returns the length of the JSON text, given the first 8 bytes of a file of `file_bytes` bytes.
// Throws Error(kData) if this cannot be a safetensors file. Errors name `file`.
uint64_t SafetensorsTextBytes(const std::string& file, std::string_view first_bytes,
                              uint64_t file_bytes);

// Parses the JSON text. Throws Error(kData) with the file and the reason: invalid JSON, duplicate
// names, unknown types, shapes that do not match their bytes, tensors that overlap, leave gaps or
// exceed the file, or extra bytes. A tensor may begin at any byte, as the format allows.
SafetensorsHeader ParseSafetensorsHeader(const std::string& file, std::string_view text,
                                         uint64_t file_bytes);

}  // namespace muster
