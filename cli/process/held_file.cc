#include "cli/process/held_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cli/process/temporary_folder.h"
#include "common/base/error.h"
#include "common/base/plain_file.h"
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
  UniqueFd fd(::memfd_create("muster-file", MFD_CLOEXEC));
  if (!fd.valid() ||
      ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw Error(ExitCode::kFailure, "cannot make a file in memory: {}", ErrorText(errno));
  }
  return HeldFile(std::move(fd));
}

std::string HeldFile::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_.get()); }

void HeldFile::KeepOverExec() const { (void)::fcntl(fd_.get(), F_SETFD, 0); }

bool HeldFile::IsAt(const std::string& path) const {
  struct stat held {
  }, there{};
  return ::fstat(fd_.get(), &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

}  // namespace muster
