#include "worker/data/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"

namespace muster {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const UniqueFd file = OpenPlainFile(path);
  if (!file.valid()) {
    throw Error(ExitCode::kData, "{}: cannot open: {}", path, ErrorText(errno));
  }
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) {
    throw Error(ExitCode::kData, "{}: cannot read the file's size: {}", path, ErrorText(errno));
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) {
    throw Error(ExitCode::kData, "{}: cannot map {} bytes: {}", path, size_, ErrorText(errno));
  }
  data_ = static_cast<const uint8_t*>(data);
  // Starts reading ahead on a cold disk. Failure is harmless.
  ::madvise(data, size_, MADV_WILLNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace muster
