#include "cli/process/held_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"

namespace muster {

HeldFile HeldFile::Of(const std::string& path) {
  UniqueFd fd = OpenPlainFile(path);
  if (!fd.valid()) {
    throw Error(ExitCode::kData, "{}: cannot be read: {}", path, ErrorText(errno));
  }
  return HeldFile(std::move(fd));
}

HeldFile HeldFile::Make(const std::function<void(const std::string& path)>& write) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  write(path);
  return Of(path);
}

HeldFile HeldFile::OfText(const std::string& text) {
  UniqueFd fd(::memfd_create("muster-file", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ::fchmod(fd.get(), 0600) != 0 ||  // readers of tokens require this mode
      ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
          0) {
    throw Error(ExitCode::kFailure, "cannot create a file in memory: {}", ErrorText(errno));
  }
  return HeldFile(std::move(fd));
}

Error Renamed(const Error& error, const std::string& path, const std::string& shown) {
  std::string text = error.what();
  for (size_t at = 0; (at = text.find(path, at)) != std::string::npos; at += shown.size()) {
    text.replace(at, path.size(), shown);
  }
  return {error.code(), text};
}

std::string HeldFile::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_.get()); }

void HeldFile::KeepOverExec() const { (void)::fcntl(fd_.get(), F_SETFD, 0); }
std::string HeldFile::InheritedPath() const { return fmt::format("/proc/self/fd/{}", fd_.get()); }

bool HeldFile::IsAt(const std::string& path) const {
  struct stat held {
  }, there{};
  return ::fstat(fd_.get(), &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

namespace fs = std::filesystem;

namespace {

constexpr const char* kFolderPrefix = "muster-temporary-";
constexpr std::chrono::minutes kYoung{1};  // a younger folder may not be locked yet

UniqueFd OpenFolder(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool IsLeftOver(const fs::path& path) {
  const UniqueFd folder = OpenFolder(path);
  struct stat seen {};
  if (!folder.valid() || ::fstat(folder.get(), &seen) != 0 || seen.st_uid != ::geteuid()) {
    return false;
  }
  const auto changed = std::chrono::system_clock::from_time_t(seen.st_mtime);
  return std::chrono::system_clock::now() - changed > kYoung &&
         TryLock(folder.get(), LockMode::kExclusive) == Locked::kYes;
}

// Removes the folders of killed processes.
void RemoveLeftOvers(const fs::path& below) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(below, ignored)) {
    const bool ours = entry.path().filename().string().starts_with(kFolderPrefix);
    if (ours && IsLeftOver(entry.path())) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  const fs::path below = fs::absolute(error ? fs::path("/tmp") : temporary);
  RemoveLeftOvers(below);
  path_ = below / (std::string(kFolderPrefix) + "XXXXXX");
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Error(ExitCode::kFailure,
                "cannot create a folder below {}: {}; set TMPDIR to use another place",
                below.string(), ErrorText(errno));
  }
  lock_ = OpenFolder(path_);
  (void)TryLock(lock_.get(), LockMode::kExclusive);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace muster
