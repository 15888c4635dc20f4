// Memory that processes of one host share: a memfd and this process's mapping of it.
//
// It has no name in any file system, so there is nothing to clean up and nothing for other users
// to find: who is to see it gets the file descriptor over a socket. The memory lives as long as
// anyone maps it or holds the descriptor.
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
  // New memory, all zeros, its pages reserved: a lack of memory shows here and not at the first
  // write. With `reserved` only the first so many bytes: the others take memory when they are
  // written. Its size is sealed: no holder of the descriptor can make another's access fail.
  // `name` is for people (/proc/PID/maps). Throws Error(kFailure).
  static SharedMemory Create(const char* name, size_t bytes, Access access,
                             std::optional<size_t> reserved = std::nullopt);
  // Maps all of the memory that another process made. Throws Error(kFailure) if it is not a memfd
  // that is sealed as Create seals it.
  static SharedMemory Map(UniqueFd fd, Access access);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  // From now on this process's mapping is the only one that can write: whoever gets the
  // descriptor can map it for reading only (EPERM otherwise).
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

}  // namespace muster
