// Reads a file of the safetensors format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/unique_fd.h"
#include "common/tensors/safetensors_header.h"

namespace muster {

// What it reads is checked: the header when it is opened, the length at each read. Nothing is
// mapped, so that a file that shrinks meanwhile is an error. Throws Error(kData) that names the
// file. May be used by several threads.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

  // Of a tensor of this file's header. `to` has exactly its size.
  void ReadBytes(const StoredTensor& tensor, std::span<std::byte> to) const;
  // F32, BF16, F16 and F64 (rounded to the nearest float).
  void ReadFloats(const StoredTensor& tensor, std::span<float> to) const;
  // Parts of it, from that byte or number on: a file may be larger than any memory.
  void ReadSomeBytes(const StoredTensor& tensor, uint64_t from, std::span<std::byte> to) const;
  void ReadSomeFloats(const StoredTensor& tensor, uint64_t from, std::span<float> to) const;
  // I64.
  void ReadIntegers(const StoredTensor& tensor, std::span<int64_t> to) const;

  static bool IsFloat(TensorType type);

 private:
  void ReadAt(uint64_t at, std::span<std::byte> to) const;

  const std::string path_;
  UniqueFd fd_;
  SafetensorsHeader header_;
};

}  // namespace muster
