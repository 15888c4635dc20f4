// Writes a file of the safetensors format: there whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/base/atomic_file.h"
#include "common/base/running_hash.h"
#include "common/tensors/safetensors_header.h"
#include "common/tensors/safetensors_reader.h"

namespace muster {

// Tensor by tensor, in the order of the header, and piece by piece, so that nobody needs to hold
// all of one. The metadata get the contents_hash of what was written. Throws Error(kFailure) as
// AtomicFile does; without Commit nothing is left behind.
class SafetensorsWriter {
 public:
  // Lays the tensors out anew, takes the room of the whole file from the disk and writes the
  // header.
  SafetensorsWriter(const std::string& path, const SafetensorsHeader& header);

  const SafetensorsHeader& header() const { return header_; }
  // The next bytes of the tensors, of one of them at most.
  void Write(std::span<const std::byte> bytes);
  // After the last tensor.
  void Commit();

 private:
  void PassWritten();

  const SafetensorsHeader header_;
  AtomicFile file_;
  size_t next_ = 0;            // the tensor that is being written …
  uint64_t next_written_ = 0;  // … and how much of it is
  RunningHash next_hash_;
  TensorHashes hashes_;  // of the tensors before
};

}  // namespace muster
