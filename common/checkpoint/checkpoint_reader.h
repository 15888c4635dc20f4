// Reads and checks a checkpoint.
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
inline constexpr const char* kProgramFile = "program.state";

// The folder with a run's checkpoints.
std::string CheckpointsFolder(const std::string& run_dir);

// Reads and checks the state of a checkpoint folder without its tensors. Throws Error(kData) with
// the file and the reason, and Error(kUsage) for a newer version of the format.
checkpoint::State ReadCheckpointState(const std::string& folder);
// The same, but accepts a checkpoint of any run.
checkpoint::State ReadAnyState(const std::string& folder);

// The metadata that a tensor file of this checkpoint must have.
std::map<std::string, std::string> TensorMetadata(const checkpoint::State& state);

class CheckpointReader {
 public:
  // Reads the state and the tensors' header. Throws like ReadCheckpointState, and also if the two
  // files and the folder's name do not belong to the same checkpoint.
  explicit CheckpointReader(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const checkpoint::State& state() const { return state_; }

  // Reads one tensor and verifies its checksum. Throws Error(kData).
  void Read(const std::string& tensor, std::span<float> to) const;
  // Reads and verifies what the program has saved; "" if there is nothing. Throws Error(kData).
  std::string ProgramState() const;
  // Verifies everything.
  void Verify() const;

 private:
  void CheckHeader() const;
  const checkpoint::TensorFile::Tensor& Find(const std::string& tensor) const;
  const StoredTensor& Stored(const std::string& tensor) const;
  void ReadKnown(const checkpoint::TensorFile::Tensor& known, std::span<float> to) const;

  const std::string folder_;
  const checkpoint::State state_;
  std::map<std::string, const checkpoint::TensorFile::Tensor*> known_;  // of state_
  const SafetensorsReader tensors_;
};

}  // namespace muster
