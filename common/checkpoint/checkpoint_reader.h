// Reads a checkpoint, and takes nothing on trust.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "common/checkpoint/checkpoint_name.h"
#include "common/tensors/safetensors_reader.h"
#include "proto/checkpoint.pb.h"

namespace muster {

inline constexpr const char* kStateFile = "state.pb";
inline constexpr const char* kTensorFile = "tensors.safetensors";

// Where the checkpoints of a run are.
std::string CheckpointsFolder(const std::string& run_dir);

// The state of a checkpoint's folder alone, checked; its tensors are not looked at. Throws
// Error(kData) that names the file and what is wrong with it, and Error(kUsage) for a newer version
// of the format.
checkpoint::State ReadCheckpointState(const std::string& folder);
// The same, whichever run it is of.
checkpoint::State ReadAnyState(const std::string& folder);

// What makes a tensor file one of this checkpoint: its metadata.
std::map<std::string, std::string> TensorMetadata(const checkpoint::State& state);

class CheckpointReader {
 public:
  // Reads the state and the header of the tensors. Throws as above: also where the two files, or
  // the folder's name, are not of one checkpoint.
  explicit CheckpointReader(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const checkpoint::State& state() const { return state_; }

  // One tensor, checked against its checksum: throws Error(kData).
  void Read(const std::string& tensor, std::span<float> to) const;
  // Reads all of them.
  void Verify() const;

 private:
  void CheckHeader() const;
  const checkpoint::TensorFile::Tensor& Find(const std::string& tensor) const;

  const std::string folder_;
  const checkpoint::State state_;
  const SafetensorsReader tensors_;
};

}  // namespace muster
