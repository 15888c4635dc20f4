// Reads safetensors files, and recognises damaged files and files of other formats.
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
// is and what to do, such as "is a PyTorch file (torch.save), expected a safetensors file. Convert
// it: ..."; "" for any other file. `first` has up to kWrongFileBytes bytes from the beginning of
// the file.
std::string DescribeWrongFile(const std::string& path, std::string_view first);

// Checks the header when it opens the file, and the length in each read. Files are not mapped, so
// if one shrinks, reading fails instead of crashing. Throws Error(kData) with the file's name.
// Thread-safe.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

  // Reads a tensor that this file's header lists. `to` must have exactly its size.
  void ReadBytes(const StoredTensor& tensor, std::span<std::byte> to) const;
  // Accepts F32, BF16, F16 and F64 (rounded to the nearest float).
  void ReadFloats(const StoredTensor& tensor, std::span<float> to) const;
  // Read a part of a tensor, starting at byte or element `from`, because a tensor may be larger
  // than memory.
  void ReadSomeBytes(const StoredTensor& tensor, uint64_t from, std::span<std::byte> to) const;
  void ReadSomeFloats(const StoredTensor& tensor, uint64_t from, std::span<float> to) const;
  // Accepts I64.
  void ReadIntegers(const StoredTensor& tensor, std::span<int64_t> to) const;

  static bool IsFloat(TensorType type);

 private:
  void ReadAt(uint64_t at, std::span<std::byte> to) const;

  const std::string path_;
  UniqueFd fd_;
  SafetensorsHeader header_;
};

// The metadata key of the contents hash. Its value has 16 hexadecimal digits.
inline constexpr const char* kContentsHash = "contents_hash";

// XXH3-64 of each tensor's bytes, by its name.
using TensorHashes = std::map<std::string, uint64_t>;

// Hashes the metadata (except this hash) and the tensors: names, types, shapes and bytes. Positions
// in the file do not matter, so another program may rewrite the file.
std::string ContentsHash(const SafetensorsHeader& header, const TensorHashes& tensors);

// Computes the same hash from the whole file.
std::string ContentsHashOf(const SafetensorsReader& file);

}  // namespace muster
