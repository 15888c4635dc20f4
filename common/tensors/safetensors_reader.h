// Reads a file of the safetensors format, and tells a damaged file, and one of another kind, from a
// whole one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/tensors/safetensors_header.h"

namespace muster {

inline constexpr size_t kWrongFileBytes = 4096;

// Recognizes PyTorch pickles, NumPy archives, Git LFS pointers and directories. Returns what `path`
// is and what to do instead, such as "is a PyTorch file (torch.save), expected a safetensors file.
// Convert it: ..."; "" for any other file. `first`: up to kWrongFileBytes bytes of its beginning.
std::string DescribeWrongFile(const std::string& path, std::string_view first);

// What it reads is checked: the header when it is opened, the length at each read. Nothing is
// mapped, so that a file that shrinks meanwhile is an error. Throws Error(kData) that names the
// file. May be used by several threads.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

  // Reads a tensor of this file's header. `to` has exactly its size.
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

// The key of the metadata; 16 hexadecimal digits.
inline constexpr const char* kContentsHash = "contents_hash";

// XXH3-64 of each tensor's bytes, by its name.
using TensorHashes = std::map<std::string, uint64_t>;

// Hashes the metadata without the hash itself, and the tensors: names, types, shapes and bytes.
// Where they lie in the file makes no difference, so another program may write it anew.
std::string ContentsHash(const SafetensorsHeader& header, const TensorHashes& tensors);

// Reads all of the file.
std::string ContentsHashOf(const SafetensorsReader& file);

}  // namespace muster
