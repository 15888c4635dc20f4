// Writes files that appear completely or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/base/fd.h"

namespace muster {

// Writes to `path`.partial and renames it to `path` when everything is on disk. The old file at
// `path` stays until then. On failure, removes the partial file and throws Error(kFailure) with the
// file name. If a killed process leaves a partial file, the next writer overwrites it.
class AtomicFile {
 public:
  // Reserves `expected_bytes` first, so that a full disk is detected before writing; 0: unknown.
  // Throws if `path` is not a plain file or if another process is writing it.
  explicit AtomicFile(const std::string& path, uint64_t expected_bytes = 0);
  // Removes the partial file unless committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;

  void Write(std::span<const std::byte> bytes);
  // Replaces bytes that have already been written, starting at offset `at`.
  void Overwrite(uint64_t at, std::span<const std::byte> bytes);
  uint64_t written() const { return written_; }
  // Syncs the file, renames it, and syncs the directory. Nothing may be written afterwards.
  void Commit();

 private:
  [[noreturn]] void Fail(const char* what);
  void Open();
  void Reserve(uint64_t bytes);

  const std::string path_, temporary_;
  UniqueFd fd_;
  uint64_t written_ = 0, reserved_ = 0;
};

// Writes a text file in the same way.
void WriteFileAtomically(const std::string& path, const std::string& text);

// Throws Error(kUsage) if something is in the file that does not begin as what would replace it.
// `option` has the file's name.
void RequireReplaceable(const std::string& option, const std::string& path,
                        std::string_view beginning);

// Syncs a folder, or the folder of the file `path`, so that creating, renaming or removing files in
// it survives a power loss. Throws Error(kFailure).
void SyncFolder(const std::string& folder);
void SyncFolderOf(const std::string& path);

}  // namespace muster
