// Folders that appear whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "common/base/unique_fd.h"

namespace muster {

// Makes `dir` if need be and keeps other Muster processes from writing data sets there, until
// destruction. The lock is on the directory itself and leaves nothing behind, whatever happens to
// the process.
class DirectoryLock {
 public:
  // Throws Error(kFailure) where the directory cannot be made or somebody else holds the lock.
  explicit DirectoryLock(const std::filesystem::path& dir);

 private:
  UniqueFd fd_;
};

// A new file. Every error of the system is an Error(kFailure) that names the file.
class OutputFile {
 public:
  enum class Mode { kNew, kAppend };
  explicit OutputFile(const std::filesystem::path& path, Mode mode = Mode::kNew);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void Write(std::span<const uint8_t> bytes);
  void Close();  // on the disk after this

 private:
  const std::filesystem::path path_;
  int fd_;
};

// dir/name in the making: files are written to a hidden directory beside it, which gets its name
// in Commit() and is removed otherwise. Whoever makes one holds the DirectoryLock of `dir`.
class StagedFolder {
 public:
  // Removes what an interrupted process left. Throws Error(kFailure).
  StagedFolder(const std::filesystem::path& dir, const std::string& name);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::filesystem::path& path() const { return staging_; }
  // Throws Error(kFailure), also where dir/name is there and not an empty directory.
  void Commit();

 private:
  const std::filesystem::path target_, staging_;
  bool committed_ = false;
};

}  // namespace muster
