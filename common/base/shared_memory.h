// Memory shared by processes on one host: a memfd and this process's mapping of it.
//
// It has no name in a file system, so there is nothing to clean up and other users cannot find it.
// Processes that may map it receive the file descriptor over a socket. The memory exists as long as
// a process maps it or holds the descriptor.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "common/base/fd.h"

namespace muster {

class SharedMemory {
 public:
  enum class Access { kRead, kReadWrite };

  SharedMemory() = default;
  // Creates zeroed memory and reserves its pages, so that a lack of memory is detected here and not
  // at the first write. With `reserved`, only that many bytes at the beginning are reserved; the
  // rest is allocated when written. The size is sealed, so that no holder of the descriptor can
  // make accesses by others fail. `name` appears in /proc/PID/maps. Throws Error(kFailure).
  static SharedMemory Create(const char* name, size_t bytes, Access access,
                             std::optional<size_t> reserved = std::nullopt);
  // Maps another process's memory. Throws Error(kFailure) unless it is a memfd sealed as in Create.
  static SharedMemory Map(UniqueFd fd, Access access);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // Makes this process's mapping the only writable one: receivers of the descriptor can only map it
  // for reading (EPERM otherwise).
  void SealAgainstNewWriters();

  int fd() const { return fd_.get(); }
  size_t bytes() const { return bytes_; }
  std::span<const float> floats() const {
    return {static_cast<const float*>(address_), bytes_ / sizeof(float)};
  }
  // Only with Access::kReadWrite.
  std::span<float> writable_floats() const {
    return {static_cast<float*>(address_), bytes_ / sizeof(float)};
  }

 private:
  SharedMemory(UniqueFd fd, size_t bytes, Access access);

  UniqueFd fd_;
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

// Throws Error(kFailure) unless this system can share memory that other processes may read but not
// write (Linux 5.1).
void RequireSealing();
bool CanSeal();

}  // namespace muster
