// Tells a damaged safetensors file from a whole one: a hash of all that it holds, in its metadata.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/tensors/safetensors_reader.h"

namespace muster {

// The key of the metadata; 16 hexadecimal digits.
inline constexpr const char* kContentsHash = "contents_hash";

// XXH3-64 of each tensor's bytes, by its name.
using TensorHashes = std::map<std::string, uint64_t>;

// Of the metadata, but for the hash itself, and of the tensors: names, types, shapes and bytes.
// Where they lie in the file makes no difference, so another program may write it anew.
std::string ContentsHash(const SafetensorsHeader& header, const TensorHashes& tensors);

// Reads all of the file.
std::string ContentsHashOf(const SafetensorsReader& file);

}  // namespace muster
