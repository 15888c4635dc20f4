#include "common/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"

namespace muster {
AtomicFile::AtomicFile(const std::string& path, uint64_t expected_bytes)
    : path_(path), temporary_(path + ".partial") {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(ExitCode::kFailure, "{}: cannot be written: it is {}, not a plain file", path,
                S_ISDIR(status.st_mode) ? "a folder" : "a device, a pipe or a socket");
  }
  Open();
  Reserve(expected_bytes);
}

AtomicFile::~AtomicFile() {
  if (fd_.valid()) ::unlink(temporary_.c_str());
}

void AtomicFile::Fail(const char* what) {
  const int error = errno;
  if (fd_.valid()) ::unlink(temporary_.c_str());
  fd_.Reset();
  throw Error(ExitCode::kFailure, "{}: cannot {}: {}", path_, what, ErrorText(error));
}

void AtomicFile::Open() {
  do {
    fd_ = OpenPlainFile(temporary_, "a plain file", O_WRONLY | O_CREAT);
    if (!fd_.valid()) Fail("be created");
    // On a file system without locks, concurrent writers of one file are not detected.
    if (TryLock(fd_.get()) == Locked::kTaken) {
      fd_.Reset();  // belongs to the other process
      throw Error(ExitCode::kFailure, "{}: another process is writing this file ({})", path_,
                  temporary_);
    }
  } while (!IsStillAt(fd_.get(), temporary_));
  if (::ftruncate(fd_.get(), 0) != 0) Fail("be written");
}

void AtomicFile::Reserve(uint64_t bytes) {
  if (bytes == 0) return;
  int failed;
  do {
    failed = ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(bytes));
  } while (failed != 0 && errno == EINTR);
  // Not all file systems support fallocate.
  if (failed != 0 && errno != EOPNOTSUPP && errno != ENOSYS) Fail("be written");
  reserved_ = failed == 0 ? bytes : 0;
}

void AtomicFile::Write(std::span<const std::byte> bytes) {
  MUSTER_CHECK(fd_.valid());
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("be written");
    bytes = bytes.subspan(static_cast<size_t>(n));
    written_ += static_cast<uint64_t>(n);
  }
}

void AtomicFile::Overwrite(uint64_t at, std::span<const std::byte> bytes) {
  MUSTER_CHECK(fd_.valid() && at + bytes.size() <= written_);
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("be written");
    bytes = bytes.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
}

void AtomicFile::Commit() {
  MUSTER_CHECK(fd_.valid());
  if (reserved_ > written_ && ::ftruncate(fd_.get(), static_cast<off_t>(written_)) != 0) {
    Fail("be written");
  }
  if (::fsync(fd_.get()) != 0) Fail("be written");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) Fail("be renamed into place");
  fd_.Reset();  // unlocks only after the temporary name is gone
  SyncFolderOf(path_);
}

void WriteFileAtomically(const std::string& path, const std::string& text) {
  AtomicFile file(path, text.size());
  file.Write(std::as_bytes(std::span(text)));
  file.Commit();
}

void RequireReplaceable(const std::string& option, const std::string& path,
                        std::string_view beginning) {
  std::string found(beginning.size(), '\0');
  std::ifstream file = ReadPlainFile(path);
  file.read(found.data(), std::ssize(found));
  if (file.gcount() == 0 || found == beginning) return;
  throw Error(ExitCode::kUsage,
              "{} {}: this file exists and is of another kind, so it is not overwritten; choose "
              "another",
              option, path);
}

void SyncFolder(const std::string& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder and fail with EINVAL.
  if (fd.valid() && (::fsync(fd.get()) == 0 || errno == EINVAL)) return;
  throw Error(ExitCode::kFailure, "{}: cannot sync this folder to disk: {}", folder,
              ErrorText(errno));
}

void SyncFolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  SyncFolder(folder.empty() ? "." : folder);
}

}  // namespace muster
