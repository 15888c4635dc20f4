// A whole file mapped read-only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace muster {

// The bytes of a regular file, mapped and shared: workers that map the same file share the pages of
// the system's cache. Any thread may read.
//
// The size is read once from the opened file. If the file is truncated in place later, reading
// beyond its new end kills the process with SIGBUS. Files that are replaced by rename or deleted
// stay intact until they are unmapped.
class MappedFile {
 public:
  // Throws an Error(kData) that names the file if it cannot be opened or mapped, or is not a
  // regular file. An empty file has no bytes.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace muster
