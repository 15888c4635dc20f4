#include "launch/gpu/card_lock.h"

#include <sys/file.h>

#include <cctype>
#include <cerrno>

#include "common/base/error.h"
#include "common/base/file_lock.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

constexpr int kAttempts = 100;  // against somebody who removes the file

// Part of a card's UUID may be a path (older drivers' MIG-GPU-…/1/0).
std::string FileName(const std::string& uuid) {
  std::string name = "muster-gpu-";
  for (const char c : uuid) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
  }
  return name + ".lock";
}

}  // namespace

std::optional<CardLock> CardLock::Try(const LockFolder& folder, const std::string& uuid) {
  MUSTER_CHECK(!uuid.empty());
  const std::string name = FileName(uuid);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    UniqueFd file = folder.Open(name);
    const Locked locked = TryLock(file.get());
    if (locked == Locked::kTaken) return std::nullopt;
    if (locked == Locked::kCannot) {
      throw Error(ExitCode::kFailure, "cannot lock {}: {}", folder.File(name), ErrorText(errno));
    }
    if (IsStillAt(file.get(), folder.File(name))) return CardLock(std::move(file));
  }
  throw Error(ExitCode::kFailure, "{} is removed again and again: something cleans up {} too often",
              folder.File(name), folder.path());
}

void CardLock::Release() {
  ::flock(file_.get(), LOCK_UN);
  file_.Reset();
}

}  // namespace muster
