// Reads archives of arrays as numpy.savez and numpy.savez_compressed write them: a zip file with a
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

// "<f4", as a .npy header has it; "" for a type that NumPy does not have.
const char* NumpyType(TensorType type);

struct NpzArray {
  std::string name;  // x, of the archive's x.npy
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  // C order; empty: one number
  uint64_t elements = 0;
  size_t header_bytes = 0;

  std::string Text() const;  // "float32 [150, 4]"
};

// Used by one thread. Throws Error(kData) that names the file and the array, for what is damaged or
// truncated, and for what a .npy file may hold that is no plain array of numbers. What it returns
// asks for no more memory than the file's size justifies.
class NpzReader {
 public:
  // Reads the archive's directory.
  explicit NpzReader(const std::string& path);
  ~NpzReader();

  const std::string& path() const;
  bool Has(const std::string& name) const;

  // Reads the header of an array that must be there.
  NpzArray Describe(const std::string& name) const;
  // Hands over the bytes of a described array, in pieces of whole elements. The archive's checksum
  // has been compared when it returns.
  void Read(const NpzArray& array,
            const std::function<void(std::span<const std::byte> piece)>& take) const;

 private:
  class Archive;
  const std::unique_ptr<Archive> archive_;
};

}  // namespace muster
