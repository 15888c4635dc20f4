#include "common/tensors/contents_hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <vector>

namespace muster {
namespace {

constexpr uint64_t kReadBytes = 4 << 20;

// Nothing can be moved from one text to the next unseen.
std::string WithLength(const std::string& text) { return fmt::format("{}:{}", text.size(), text); }

}  // namespace

uint64_t HashTensor(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

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
  XXH3_state_t* const state = XXH3_createState();
  for (const StoredTensor& tensor : file.header().tensors) {
    XXH3_64bits_reset(state);
    for (uint64_t at = 0; at < tensor.bytes(); at += piece.size()) {
      piece.resize(std::min(kReadBytes, tensor.bytes() - at));
      file.ReadPiece(tensor, at, piece);
      XXH3_64bits_update(state, piece.data(), piece.size());
    }
    hashes[tensor.name] = XXH3_64bits_digest(state);
  }
  XXH3_freeState(state);
  return ContentsHash(file.header(), hashes);
}

}  // namespace muster
