#include "launch/data/staged_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file_lock.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void Fail(const fs::path& path, const char* what, int error) {
  throw Error(ExitCode::kFailure, "{}: cannot {}: {}", path.string(), what, ErrorText(error));
}

}  // namespace

DirectoryLock::DirectoryLock(const fs::path& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) Fail(dir, "make this directory", error.value());
  fd_.Reset(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd_.valid()) Fail(dir, "open this directory", errno);
  const Locked locked = TryLock(fd_.get());
  if (locked == Locked::kYes) return;
  if (locked == Locked::kCannot) Fail(dir, "lock this directory", errno);
  throw Error(ExitCode::kFailure,
              "{}: another Muster process is writing a data set here. Wait for it, or end it.",
              dir.string());
}

OutputFile::OutputFile(const fs::path& path, Mode mode) : path_(path) {
  const int how = mode == Mode::kNew ? O_TRUNC : O_APPEND;
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
  if (fd_ < 0) Fail(path_, "create", errno);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::Write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail(path_, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void OutputFile::Close() {
  if (::fsync(fd_) != 0) Fail(path_, "write to disk", errno);
  const int result = ::close(fd_);
  fd_ = -1;
  if (result != 0) Fail(path_, "close", errno);
}

StagedFolder::StagedFolder(const fs::path& dir, const std::string& name)
    : target_(dir / name), staging_(dir / ("." + name + ".unfinished")) {
  std::error_code error;
  fs::remove_all(staging_, error);
  if (error) Fail(staging_, "remove what an interrupted process left", error.value());
  fs::create_directory(staging_, error);
  if (error) Fail(staging_, "make this directory", error.value());
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;  // the next one tries again
  if (!committed_) fs::remove_all(staging_, ignored);
}

void StagedFolder::Commit() {
  SyncFolder(staging_);
  if (std::rename(staging_.c_str(), target_.c_str()) != 0) {
    Fail(target_, "give the finished folder this name", errno);
  }
  committed_ = true;
  SyncFolder(target_.parent_path());
}

}  // namespace muster
