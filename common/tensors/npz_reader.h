// Reads archives of arrays written by numpy.savez and numpy.savez_compressed: a zip file with a
// .npy file for each array
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/tensors/safetensors_header.h"

namespace muster {

struct NpzArray {
  std::string name;  // x for the archive's x.npy
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  // C order; empty: a scalar
  uint64_t elements = 0;
  size_t header_bytes = 0;

  std::string Text() const;  // "float32 [150, 4]"
};

// Use from one thread. Throws Error(kData), naming the file and the array, if the file is damaged
// or truncated, or if an array is not a plain array of numbers. Never allocates more memory than
// the file's size justifies.
class NpzReader {
 public:
  // Reads the archive's directory.
  explicit NpzReader(const std::string& path);
  ~NpzReader();

  const std::string& path() const;
  bool Has(const std::string& name) const;

  // Reads the header of an array. Throws if there is no such array.
  NpzArray Describe(const std::string& name) const;
  // Passes the bytes of a described array to `take`, in pieces of whole elements. Verifies the
  // archive's checksum before returning.
  void Read(const NpzArray& array,
            const std::function<void(std::span<const std::byte> piece)>& take) const;

 private:
  class Archive;
  const std::unique_ptr<Archive> archive_;
};

}  // namespace muster
