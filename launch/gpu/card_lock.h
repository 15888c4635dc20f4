// One card for one job: a lock that every Muster job of this host respects, whoever runs it.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "common/base/unique_fd.h"
#include "launch/gpu/lock_folder.h"

namespace muster {

// The lock is the kernel's (flock) and belongs to the open file: it holds while any process has it,
// this one or a worker that inherited fd(), and is gone with the last of them, however they end.
class CardLock {
 public:
  // Nothing if somebody has it. Throws Error(kFailure) where no lock can be had at all.
  static std::optional<CardLock> Try(const LockFolder& folder, const std::string& uuid);

  CardLock(CardLock&&) noexcept = default;
  CardLock& operator=(CardLock&&) noexcept = default;

  // Who has the lock of this card although no ticket says so, as far as this process can see:
  // "anna's flock /run/lock/… (pid 4242)"; "" if nobody has it.
  static std::string HolderText(const LockFolder& folder, const std::string& uuid);

  int fd() const { return file_.get(); }
  // Gives it back at once, also where a process that is just being started still has a copy.
  void Release();

 private:
  explicit CardLock(UniqueFd file) : file_(std::move(file)) {}

  UniqueFd file_;
};

}  // namespace muster
