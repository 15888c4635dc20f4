#include "common/tensors/foreign_file.h"

#include <fmt/core.h>

#include <filesystem>

#include "common/base/error.h"
#include "common/base/file_kind.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// A line for a shell that makes one file of the other.
std::string Conversion(const std::string& path, const char* python) {
  return fmt::format("python3 -c '{}' {} {}", python, ShellWord(path),
                     ShellWord(fs::path(path).replace_extension(".safetensors")));
}

// How to come to a safetensors file, or what to do instead.
std::string Advice(FileKind kind, const std::string& path) {
  switch (kind) {
    case FileKind::kTorch:
      return fmt::format(
          "Make one of the state_dict in it: {} (where the state_dict is one entry of several: "
          "torch.load(…)[\"state_dict\"])",
          Conversion(path,
                     "import sys, torch, safetensors.torch as s; "
                     "s.save_file(torch.load(sys.argv[1], map_location=\"cpu\", "
                     "weights_only=True), sys.argv[2])"));
    case FileKind::kNpz:
      return "Make one of it: " +
             Conversion(path,
                        "import sys, numpy, safetensors.numpy as s; "
                        "s.save_file(dict(numpy.load(sys.argv[1])), sys.argv[2])");
    case FileKind::kNpy:
      return "An array has no name; safetensors.numpy.save_file({\"NAME\": numpy.load(FILE), …}, "
             "OUT) makes a safetensors file of several";
    case FileKind::kPickle:
    case FileKind::kHdf5:
    case FileKind::kGguf:
      return "Load it with the program that wrote it, and save the arrays with "
             "safetensors.numpy.save_file({\"NAME\": ARRAY, …}, OUT)";
    case FileKind::kOnnx:
      return "Muster writes ONNX, and does not read it: give the safetensors file, the checkpoint "
             "or the run that it was made from";
    case FileKind::kCheckpointState:
      return fmt::format("Give the checkpoint, which is its folder: {}",
                         fs::absolute(path).parent_path().string());
    case FileKind::kGitLfs:
      return "`git lfs pull` fetches the file";
    case FileKind::kTensorBoard:
      return "The weights of a run are beside it, in model.safetensors: give the directory of the "
             "run";
    case FileKind::kHtml:
      return "The download got a page in place of the file";
    case FileKind::kZip:
    case FileKind::kGzip:
    case FileKind::kArchive:
      return "Unpack it first";
    default:
      return "";
  }
}

// Who wrote it may know it by its first bytes.
void RefuseUnknown(const std::string& path, std::string_view first) {
  constexpr size_t kLengthBytes = 8, kShown = 12;
  if (first.size() <= kLengthBytes) return;  // whose reader says how short it is
  std::string bytes;
  for (const char c : first.substr(0, kShown)) {
    bytes += fmt::format(" {:02x}", static_cast<unsigned char>(c));
  }
  throw Error(ExitCode::kData,
              "{}: is no safetensors file, or its beginning is damaged: expected the length of a "
              "header in {} bytes and then {{, got{}",
              path, kLengthBytes, bytes);
}

}  // namespace

void RefuseForeignFile(const std::string& path, std::string_view first) {
  const FileKind kind = KindOfFile(first);
  if (kind == FileKind::kSafetensors) return;
  if (kind == FileKind::kUnknown) return RefuseUnknown(path, first);
  const std::string advice = Advice(kind, path);
  throw Error(ExitCode::kData, "{}: is {}, expected a safetensors file{}{}", path, NameOf(kind),
              advice.empty() ? "" : ". ", advice);
}

}  // namespace muster
