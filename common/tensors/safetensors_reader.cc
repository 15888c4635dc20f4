#include "common/tensors/safetensors_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "common/base/element_type.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"
#include "common/base/running_hash.h"
#include "common/base/text.h"

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
    text +=
        fmt::format(". Write one with: muster export {} --format safetensors OUT", ShellWord(path));
  }
  return text;
}

// torch.save writes a zip archive with a data.pkl. Before version 1.6, it wrote a pickle.
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
                      "import sys, torch, safetensors.torch as s; d = torch.load(sys.argv[1], "
                      "map_location=\"cpu\", weights_only=True); s.save_file(next((d[k] for k in "
                      "(\"state_dict\", \"model_state_dict\", \"model\") if k in d), d), "
                      "sys.argv[2])");
  }
  if (IsNpz(first)) {
    return "is a NumPy archive (.npz), expected a safetensors file. Convert it: " +
           Conversion(path,
                      "import sys, numpy, safetensors.numpy as s; "
                      "s.save_file(dict(numpy.load(sys.argv[1])), sys.argv[2])");
  }
  if (first.starts_with("version https://git-lfs")) {
    return "is a Git LFS pointer, expected a safetensors file. Fetch it with `git lfs pull`";
  }
  return "";
}

namespace {

UniqueFd Open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(ExitCode::kUsage, "{}: {}", path, DescribeWrongFile(path, ""));
  }
  return OpenPlainFile(path, "a safetensors file");
}

// Refuses a file of another format. In a safetensors file, the JSON text follows 8 bytes with its
// length.
void RefuseWrongFile(const std::string& path, std::string_view first) {
  if (first.size() > 8 && first[8] == '{') return;
  const std::string wrong = DescribeWrongFile(path, first);
  if (!wrong.empty()) throw Error(ExitCode::kData, "{}: {}", path, wrong);
  if (first.size() <= 8) return;  // ParseSafetensorsHeader reports the length
  std::string bytes;
  for (const char c : first.substr(0, 12)) {
    bytes += fmt::format(" {:02x}", static_cast<unsigned char>(c));
  }
  throw Error(ExitCode::kData, "{}: is damaged, or not a safetensors file: it begins with{}", path,
              bytes);
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path), fd_(Open(path)) {
  struct stat status {};
  if (!fd_.valid() || ::fstat(fd_.get(), &status) != 0) {
    throw Error(ExitCode::kData, "{}: cannot be read: {}", path, ErrorText(errno));
  }
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  std::string first(std::min<uint64_t>(kWrongFileBytes, file_bytes), '\0');
  ReadAt(0, std::as_writable_bytes(std::span(first)));
  RefuseWrongFile(path, first);
  first.resize(std::min<size_t>(8, first.size()));
  std::string text(SafetensorsTextBytes(path, first, file_bytes), '\0');
  ReadAt(first.size(), std::as_writable_bytes(std::span(text)));
  header_ = ParseSafetensorsHeader(path, text, file_bytes);
}

void SafetensorsReader::ReadAt(uint64_t at, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(fd_.get(), to.data(), to.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ExitCode::kData, "{}: cannot be read: {}", path_, ErrorText(errno));
    if (n == 0) throw Error(ExitCode::kData, "{}: was truncated while reading", path_);
    to = to.subspan(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
}

void SafetensorsReader::ReadBytes(const StoredTensor& tensor, std::span<std::byte> to) const {
  MUSTER_CHECK(to.size() == tensor.bytes());
  ReadSomeBytes(tensor, 0, to);
}

void SafetensorsReader::ReadSomeBytes(const StoredTensor& tensor, uint64_t from,
                                      std::span<std::byte> to) const {
  MUSTER_CHECK(from <= tensor.bytes() && to.size() <= tensor.bytes() - from);
  ReadAt(header_.data_begin + tensor.begin + from, to);
}

bool SafetensorsReader::IsFloat(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kBF16 || type == TensorType::kF16 ||
         type == TensorType::kF64;
}

void SafetensorsReader::ReadFloats(const StoredTensor& tensor, std::span<float> to) const {
  MUSTER_CHECK(to.size() == tensor.elements());
  ReadSomeFloats(tensor, 0, to);
}

void SafetensorsReader::ReadSomeFloats(const StoredTensor& tensor, uint64_t from,
                                       std::span<float> to) const {
  MUSTER_CHECK(from <= tensor.elements() && to.size() <= tensor.elements() - from);
  const uint64_t at = from * muster::BytesOf(tensor.type);
  switch (tensor.type) {
    case TensorType::kF32:
      return ReadSomeBytes(tensor, at, std::as_writable_bytes(to));
    case TensorType::kBF16:
    case TensorType::kF16: {
      std::vector<uint16_t> halves(to.size());
      ReadSomeBytes(tensor, at, std::as_writable_bytes(std::span(halves)));
      const bool bf16 = tensor.type == TensorType::kBF16;
      return FromHalves(bf16 ? ElementType::kBFloat16 : ElementType::kFloat16, halves, to.data());
    }
    case TensorType::kF64: {
      std::vector<double> doubles(to.size());
      ReadSomeBytes(tensor, at, std::as_writable_bytes(std::span(doubles)));
      std::ranges::transform(doubles, to.begin(), [](double x) { return static_cast<float>(x); });
      return;
    }
    default:
      throw Error(ExitCode::kData, "{}: tensor {} has type {}, expected F32, BF16, F16 or F64",
                  path_, tensor.name, Name(tensor.type));
  }
}

void SafetensorsReader::ReadIntegers(const StoredTensor& tensor, std::span<int64_t> to) const {
  if (tensor.type != TensorType::kI64) {
    throw Error(ExitCode::kData, "{}: tensor {} has type {}, expected I64", path_, tensor.name,
                Name(tensor.type));
  }
  ReadBytes(tensor, std::as_writable_bytes(to));
}

namespace {

constexpr uint64_t kReadBytes = 4 << 20;

// Prefixes a text with its length, which makes the concatenation of texts unambiguous.
std::string WithLength(const std::string& text) { return fmt::format("{}:{}", text.size(), text); }

}  // namespace

std::string ContentsHash(const SafetensorsHeader& header, const TensorHashes& tensors) {
  std::string text;
  for (const auto& [key, value] : header.metadata) {
    if (key != kContentsHash) text += WithLength(key) + WithLength(value);
  }
  std::vector<const StoredTensor*> sorted;
  for (const StoredTensor& tensor : header.tensors) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, &StoredTensor::name);
  for (const StoredTensor* const tensor : sorted) {
    text += fmt::format("{}{}{}{:016x}", WithLength(tensor->name), Name(tensor->type),
                        tensor->ShapeString(), tensors.at(tensor->name));
  }
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

std::string ContentsHashOf(const SafetensorsReader& file) {
  TensorHashes hashes;
  std::vector<std::byte> piece;
  for (const StoredTensor& tensor : file.header().tensors) {
    RunningHash hash;
    for (uint64_t at = 0; at < tensor.bytes(); at += piece.size()) {
      piece.resize(std::min(kReadBytes, tensor.bytes() - at));
      file.ReadSomeBytes(tensor, at, piece);
      hash.Add(piece);
    }
    hashes[tensor.name] = hash.value();
  }
  return ContentsHash(file.header(), hashes);
}

}  // namespace muster
