// A file's bytes one after the other, decompressed where the file is gzip.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "worker/data/mapped_file.h"

namespace muster {

// The file's first two bytes, not its name, say whether it is gzip (RFC 1952). Used by one thread.
class ByteReader {
 public:
  // Throws Error(kData) that names the file where it cannot be read.
  explicit ByteReader(const std::string& path);
  ~ByteReader();

  const std::string& path() const { return file_.path(); }
  bool compressed() const { return inflater_ != nullptr; }

  // The most bytes that can come out of the file: its size, or, compressed, 1,032 times that,
  // which is deflate's limit. What claims to hold more is not what it says.
  int64_t MostBytes() const;

  // Fills as much of `to` as the file still holds and returns how many bytes that is. Throws
  // Error(kData) where the compressed data are damaged or end too early.
  size_t Read(std::span<uint8_t> to);

 private:
  class Inflater;
  MappedFile file_;
  std::unique_ptr<Inflater> inflater_;
  size_t at_ = 0;  // in an uncompressed file
};

}  // namespace muster
