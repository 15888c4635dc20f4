// Writes a safetensors file atomically.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/base/atomic_file.h"
#include "common/base/running_hash.h"
#include "common/tensors/safetensors_header.h"
#include "common/tensors/safetensors_reader.h"

namespace muster {

// Writes the tensors in the order of the header and in pieces, so that no tensor has to be in
// memory as a whole. Adds the contents_hash to the metadata. Throws Error(kFailure) like
// AtomicFile. Without Commit, no file is left behind.
class SafetensorsWriter {
 public:
  // Lays out the tensors again, allocates the whole file on disk and writes the header.
  SafetensorsWriter(const std::string& path, const SafetensorsHeader& header);

  const SafetensorsHeader& header() const { return header_; }
  // Writes the next bytes. One call must not span two tensors.
  void Write(std::span<const std::byte> bytes);
  // Call after the last tensor.
  void Commit();

 private:
  void PassWritten();

  const SafetensorsHeader header_;
  AtomicFile file_;
  size_t next_ = 0;            // the current tensor
  uint64_t next_written_ = 0;  // bytes of the current tensor
  RunningHash next_hash_;
  TensorHashes hashes_;  // hashes of the completed tensors
};

}  // namespace muster
