#include "common/tensors/contents_hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "common/base/running_hash.h"

namespace muster {
namespace {

constexpr uint64_t kReadBytes = 4 << 20;

// Nothing can be moved from one text to the next unseen.
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
