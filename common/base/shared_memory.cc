#include "common/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

// Available since Linux 5.1, but glibc's headers may be older than the kernel.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace muster {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// Returns the size to map. It is at least 1, because empty mappings are impossible.
size_t MappedBytes(size_t bytes) { return bytes == 0 ? 1 : bytes; }

}  // namespace

SharedMemory::SharedMemory(UniqueFd fd, size_t bytes, Access access)
    : fd_(std::move(fd)), bytes_(bytes) {
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  address_ = ::mmap(nullptr, MappedBytes(bytes), protection, MAP_SHARED, fd_.get(), 0);
  if (address_ == MAP_FAILED) {
    address_ = nullptr;
    throw Error(ExitCode::kFailure, "cannot map {} bytes of shared memory: {}", bytes,
                ErrorText(errno));
  }
}

SharedMemory SharedMemory::Create(const char* name, size_t bytes, Access access,
                                  std::optional<size_t> reserved) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    throw Error(ExitCode::kFailure, "memfd_create: {}", ErrorText(errno));
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(MappedBytes(bytes))) != 0) {
    throw Error(ExitCode::kFailure, "cannot create {} bytes of shared memory: {}", bytes,
                ErrorText(errno));
  }
  // posix_fallocate returns the error instead of setting errno.
  const auto size = static_cast<off_t>(MappedBytes(reserved.value_or(bytes)));
  if (const int error = ::posix_fallocate(fd.get(), 0, size); error != 0) {
    throw Error(ExitCode::kFailure, "cannot reserve {} bytes of shared memory: {}", size,
                ErrorText(error));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    throw Error(ExitCode::kFailure, "cannot seal shared memory: {}", ErrorText(errno));
  }
  return SharedMemory(std::move(fd), bytes, access);
}

SharedMemory SharedMemory::Map(UniqueFd fd, Access access) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    throw Error(ExitCode::kFailure, "shared memory: {}", ErrorText(errno));
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    throw Error(ExitCode::kFailure, "shared memory: expected a memfd with a sealed size");
  }
  return SharedMemory(std::move(fd), static_cast<size_t>(status.st_size), access);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      address_(std::exchange(other.address_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(address_, other.address_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (address_ != nullptr) ::munmap(address_, MappedBytes(bytes_));
}

void SharedMemory::SealAgainstNewWriters() {
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    throw Error(ExitCode::kFailure,
                "cannot seal shared memory against writers (needs Linux 5.1): {}",
                ErrorText(errno));
  }
}

void RequireSealing() {
  SharedMemory::Create("muster-probe", 1, SharedMemory::Access::kReadWrite).SealAgainstNewWriters();
}

bool CanSeal() {
  try {
    RequireSealing();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace muster
