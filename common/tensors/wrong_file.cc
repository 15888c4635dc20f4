#include "common/tensors/wrong_file.h"

#include <fmt/core.h>

#include <filesystem>

#include "common/base/shell_word.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string DescribeDirectory(const std::string& path) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return fs::exists(fs::path(path) / name, ignored); };
  std::string text = "is a directory, expected a safetensors file";
  if (has("model.safetensors")) {
    return text + ". The weights of this run are in " +
           (fs::path(path) / "model.safetensors").string();
  }
  if (has("checkpoints") || has("state.pb")) {
    text += fmt::format(". This writes one: muster export {} --format safetensors OUT",
                        ShellWord(path));
  }
  return text;
}

// torch.save writes a zip archive with a data.pkl in it; before version 1.6 it wrote a pickle.
bool IsTorch(std::string_view first) {
  if (first.starts_with("PK\3\4")) return first.find("data.pkl") != std::string_view::npos;
  return first.size() > 1 && first[0] == '\x80' && first[1] >= 2 && first[1] <= 5;
}

// numpy.savez writes a zip archive of arrays.
bool IsNpz(std::string_view first) {
  constexpr size_t kNameLengthAt = 26, kNameAt = 30;
  if (!first.starts_with("PK\3\4") || first.size() <= kNameAt) return false;
  const auto length = static_cast<unsigned char>(first[kNameLengthAt]);
  return first.substr(kNameAt, length).ends_with(".npy");
}

// A shell command that converts `path` with Python.
std::string Conversion(const std::string& path, const char* python) {
  return fmt::format("python3 -c '{}' {} {}", python, ShellWord(path),
                     ShellWord(fs::path(path).replace_extension(".safetensors")));
}

}  // namespace

std::string DescribeWrongFile(const std::string& path, std::string_view first) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return DescribeDirectory(path);
  if (IsTorch(first)) {
    return "is a PyTorch file (torch.save), expected a safetensors file. Convert its state_dict: " +
           Conversion(path,
                      "import sys, torch, safetensors.torch as s; "
                      "s.save_file(torch.load(sys.argv[1], map_location=\"cpu\", "
                      "weights_only=True), sys.argv[2])");
  }
  if (IsNpz(first)) {
    return "is a NumPy archive (.npz), expected a safetensors file. Convert it: " +
           Conversion(path,
                      "import sys, numpy, safetensors.numpy as s; "
                      "s.save_file(dict(numpy.load(sys.argv[1])), sys.argv[2])");
  }
  if (first.starts_with("version https://git-lfs")) {
    return "is a Git LFS pointer, expected a safetensors file. `git lfs pull` fetches the file";
  }
  return "";
}

}  // namespace muster
