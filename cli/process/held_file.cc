#include "cli/process/held_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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
  if (!fd.valid() || ::fchmod(fd.get(), 0600) != 0 ||  // as readers of tokens expect it
      ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
          0) {
    throw Error(ExitCode::kFailure, "cannot make a file in memory: {}", ErrorText(errno));
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

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  const fs::path below = fs::temp_directory_path(error);
  path_ = fs::absolute(error ? fs::path("/tmp") : below) / "muster-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Error(ExitCode::kFailure, "cannot make a folder below {}: {}; $TMPDIR chooses another",
                fs::path(path_).parent_path().string(), ErrorText(errno));
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace muster
