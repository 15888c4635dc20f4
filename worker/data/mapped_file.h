// A whole file, read-only, in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace muster {

// The bytes of a regular file, mapped and shared: several workers that map the same file use the
// same pages of the system's cache. Any thread may read.
//
// The size is taken from the opened file, once. If somebody truncates the file in place later,
// reading beyond its new end raises SIGBUS and the process dies of it; there is nothing sensible
// to go on with. Files that are replaced by rename or deleted stay whole until they are unmapped.
class MappedFile {
 public:
  // Throws Error(kData) that names the file where it cannot be opened, is not a regular file, or
  // cannot be mapped. An empty file gives no bytes.
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
