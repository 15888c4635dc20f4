// Reads a file sequentially and decompresses it if it is gzip.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "worker/data/mapped_file.h"

namespace muster {

// The file's first two bytes, not its name, determine whether it is gzip (RFC 1952). Not
// thread-safe.
class ByteReader {
 public:
  // Throws an Error(kData) that names the file if it cannot be read.
  explicit ByteReader(const std::string& path);
  ~ByteReader();

  const std::string& path() const { return file_.path(); }
  bool compressed() const { return inflater_ != nullptr; }

  // The upper limit of the file's uncompressed size: its size, or 1,032 times that (deflate's
  // limit) if compressed. A header that claims more is wrong.
  int64_t MostBytes() const;

  // Reads until `to` is full or the file ends. Returns the number of bytes read. Throws
  // Error(kData) if the compressed data is damaged or ends early.
  size_t Read(std::span<uint8_t> to);

 private:
  class Inflater;
  MappedFile file_;
  std::unique_ptr<Inflater> inflater_;
  size_t at_ = 0;  // position in an uncompressed file
};

}  // namespace muster
