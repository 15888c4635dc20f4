#include "common/base/file_kind.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

using namespace std::string_view_literals;

struct Beginning {
  std::string_view bytes;
  FileKind kind;
};

constexpr auto kBeginnings = std::to_array<Beginning>({
    {"\x93NUMPY"sv, FileKind::kNpy},
    {"\x89HDF\r\n\x1a\n"sv, FileKind::kHdf5},
    {"GGUF"sv, FileKind::kGguf},
    {"\x1f\x8b"sv, FileKind::kGzip},
    {"\xfd\x37zXZ\0"sv, FileKind::kArchive},
    {"BZh"sv, FileKind::kArchive},
    {"\x28\xb5\x2f\xfd"sv, FileKind::kArchive},
    {"\xff\xd8\xff"sv, FileKind::kPicture},
    {"\x89PNG\r\n\x1a\n"sv, FileKind::kPicture},
    {"GIF8"sv, FileKind::kPicture},
    {"%PDF-"sv, FileKind::kPdf},
    {"\x7f\x45LF"sv, FileKind::kProgram},
    {"MUSTERCK"sv, FileKind::kCheckpointState},
    {"version https://git-lfs"sv, FileKind::kGitLfs},
    {"<!DOCTYPE html"sv, FileKind::kHtml},
    {"<!doctype html"sv, FileKind::kHtml},
    {"<html"sv, FileKind::kHtml},
    {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv, FileKind::kTorch},  // before 1.6
});

uint64_t LittleEndian(std::string_view bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return value;
}

// The archives of torch.save and numpy.savez are told by the names in them.
FileKind KindOfZip(std::string_view first) {
  constexpr size_t kNameLengthAt = 26, kNameAt = 30;
  if (first.size() > kNameAt) {
    const auto name = first.substr(kNameAt, LittleEndian(first, kNameLengthAt, 2));
    if (name.ends_with(".npy")) return FileKind::kNpz;
  }
  return first.find("data.pkl") != std::string_view::npos ? FileKind::kTorch : FileKind::kZip;
}

// A message of protobuf that begins with the version of ONNX' format and goes on with another field
// of a model.
bool LooksLikeOnnx(std::string_view first) {
  constexpr std::string_view kNextFields("\x12\x1a\x22\x2a\x32\x3a\x42");
  return first.size() > 3 && first[0] == 8 && first[1] >= 1 && first[1] <= 30 &&
         kNextFields.find(first[2]) != std::string_view::npos;
}

// Its first record has the version of the format.
bool LooksLikeTensorBoard(std::string_view first) {
  return first.substr(0, 64).find("brain.Event:") != std::string_view::npos;
}

bool LooksLikeTar(std::string_view first) {
  constexpr size_t kMagicAt = 257;
  return first.size() > kMagicAt && first.substr(kMagicAt).starts_with("ustar");
}

bool LooksLikePickle(std::string_view first) {
  return first.size() > 2 && first[0] == '\x80' && first[1] >= 2 && first[1] <= 5;
}

// UTF-8, or any other writing that has no control characters but those between lines.
bool LooksLikeText(std::string_view first) {
  return std::ranges::none_of(first, [](char c) {
    return static_cast<unsigned char>(c) < ' ' &&
           "\t\n\r\f\x1b"sv.find(c) == std::string_view::npos;
  });
}

// The length of a header, and a header.
bool LooksLikeSafetensors(std::string_view first) {
  constexpr uint64_t kMostHeaderBytes = uint64_t{1} << 40;
  return first.size() > 8 && first[8] == '{' && LittleEndian(first, 0, 8) < kMostHeaderBytes;
}

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         "_-+=./,:@%"sv.find(c) != std::string_view::npos;
}

}  // namespace

FileKind KindOfFile(std::string_view first) {
  first = first.substr(0, kFileKindBytes);
  if (first.empty()) return FileKind::kEmpty;
  if (LooksLikeSafetensors(first)) return FileKind::kSafetensors;
  for (const Beginning& beginning : kBeginnings) {
    if (first.starts_with(beginning.bytes)) return beginning.kind;
  }
  if (first.starts_with("PK\3\4")) return KindOfZip(first);
  if (LooksLikeTensorBoard(first)) return FileKind::kTensorBoard;
  if (LooksLikeTar(first)) return FileKind::kArchive;
  if (LooksLikeOnnx(first)) return FileKind::kOnnx;
  if (LooksLikePickle(first)) return FileKind::kPickle;
  if (std::ranges::count(first, '\0') == std::ssize(first)) return FileKind::kZeros;
  return LooksLikeText(first) ? FileKind::kText : FileKind::kUnknown;
}

const char* NameOf(FileKind kind) {
  switch (kind) {
    case FileKind::kUnknown:
      return "";
    case FileKind::kEmpty:
      return "an empty file";
    case FileKind::kZeros:
      return "a file that begins with zeros";
    case FileKind::kSafetensors:
      return "a safetensors file";
    case FileKind::kTorch:
      return "a PyTorch file (torch.save)";
    case FileKind::kPickle:
      return "a pickle of Python's";
    case FileKind::kNpz:
      return "an archive of NumPy's (.npz)";
    case FileKind::kNpy:
      return "an array of NumPy's (.npy)";
    case FileKind::kOnnx:
      return "an ONNX file";
    case FileKind::kHdf5:
      return "an HDF5 file";
    case FileKind::kGguf:
      return "a GGUF file";
    case FileKind::kZip:
      return "a zip archive";
    case FileKind::kGzip:
      return "a gzip file";
    case FileKind::kArchive:
      return "an archive (tar, xz, bzip2 or zstd)";
    case FileKind::kPicture:
      return "a picture";
    case FileKind::kPdf:
      return "a PDF file";
    case FileKind::kProgram:
      return "a program or a library (ELF)";
    case FileKind::kTensorBoard:
      return "a file of TensorBoard's events";
    case FileKind::kCheckpointState:
      return "the state of a checkpoint";
    case FileKind::kGitLfs:
      return "a pointer of Git LFS, not the file itself";
    case FileKind::kHtml:
      return "a web page";
    case FileKind::kText:
      return "a text";
  }
  return "";
}

FileKind KindOfFileAt(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return FileKind::kUnknown;
  }
  // A file of the kernel's has no length, and some wait when they are read.
  std::string first(std::min<size_t>(kFileKindBytes, static_cast<size_t>(status.st_size)), '\0');
  const ssize_t n = ::pread(fd.get(), first.data(), first.size(), 0);
  if (n < 0) return FileKind::kUnknown;
  first.resize(static_cast<size_t>(n));
  return KindOfFile(first);
}

std::string ShellWord(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, IsPlain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace muster
