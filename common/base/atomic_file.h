// A file that is there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/fd.h"

namespace muster {

// Writes beside `path`, to `path`.partial, and renames it into place when all of it is on the disk.
// What was at `path` before stays until then. Whatever fails throws Error(kFailure) that names the
// file, and leaves nothing behind; what a killed process left is overwritten by the next one.
class AtomicFile {
 public:
  // `expected_bytes`: taken from the disk beforehand, so that a full one is noticed before anything
  // is written; 0: unknown. Refuses a `path` that is there and no plain file, and one that another
  // process is writing.
  explicit AtomicFile(const std::string& path, uint64_t expected_bytes = 0);
  // Removes what was written, if it has not been committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;

  void Write(std::span<const std::byte> bytes);
  // What has been written already, from this place on.
  void Overwrite(uint64_t at, std::span<const std::byte> bytes);
  uint64_t written() const { return written_; }
  // Syncs the file, renames it, and syncs the directory. Nothing is written after that.
  void Commit();

 private:
  [[noreturn]] void Fail(const char* what);
  void Open();
  void Reserve(uint64_t bytes);

  const std::string path_, temporary_;
  UniqueFd fd_;
  uint64_t written_ = 0, reserved_ = 0;
};

// The same for a text.
void WriteFileAtomically(const std::string& path, const std::string& text);

// Makes what has been created, renamed or removed in a folder, or in that of the file `path`,
// survive a loss of power. Throws Error(kFailure).
void SyncFolder(const std::string& folder);
void SyncFolderOf(const std::string& path);

}  // namespace muster
