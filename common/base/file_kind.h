// What a file is that somebody took for one of another kind: told by how it begins, so that an
// error can say it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

enum class FileKind {
  kUnknown,
  kEmpty,
  kZeros,        // nothing was ever written to its beginning
  kSafetensors,  // or so it looks
  kTorch,        // of torch.save
  kPickle,       // Python's
  kNpz,
  kNpy,
  kOnnx,
  kHdf5,
  kGguf,
  kZip,
  kGzip,
  kArchive,  // tar, or packed by xz, bzip2 or zstd
  kPicture,  // JPEG, PNG, GIF
  kPdf,
  kProgram,          // or a library: ELF
  kTensorBoard,      // events
  kCheckpointState,  // state.pb of a checkpoint
  kGitLfs,           // what git has in place of a large file
  kHtml,
  kText,
};

// As many bytes tell as much as can be told.
inline constexpr size_t kFileKindBytes = 4096;

// `first`: the first bytes of the file, at most kFileKindBytes of them; no others are looked at.
FileKind KindOfFile(std::string_view first);

// "a PyTorch file (torch.save)"; "" of kUnknown.
const char* NameOf(FileKind kind);

// The kind of a plain file, without waiting for anything: kUnknown of what is none, or cannot be
// read.
FileKind KindOfFileAt(const std::string& path);

// A word of a command line, quoted where a shell would take it for something else.
std::string ShellWord(const std::string& word);

}  // namespace muster
