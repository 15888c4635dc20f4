// A run's variables and checkpoints in a temporary directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/checkpoint/list_checkpoints.h"
#include "ps/record/write_checkpoint.h"
#include "ps/update/variables.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {

inline constexpr const char* kSomeRun = "0123456789abcdef0123456789abcdef";
inline constexpr const char* kOtherRun = "fedcba9876543210fedcba9876543210";

class SomeRun {
 public:
  SomeRun();
  SomeRun(const SomeRun&) = delete;

  std::string dir() const { return dir_; }
  std::string Folder(const CheckpointName& name) const;

  // Fills every tensor, including image(), with values unique to the step.
  const TensorImage& image() const { return image_; }
  CheckpointToWrite At(const CheckpointName& name);
  // Throws the errors of WriteCheckpoint.
  void Write(const CheckpointName& name, std::vector<CheckpointName> expired = {});
  // Whether its tensors have the values of its step.
  bool Holds(const CheckpointReader& reader) const;
  // The checkpoint that a run would resume from, if its tensors are correct.
  std::optional<CheckpointName> Newest() const;

 private:
  float ValueOf(int64_t step, size_t arena, size_t i) const;

  const TempDir temp_;
  const std::string dir_ = temp_.string();
  VariableLayout layout_;
  Variables variables_;
  TensorImage image_;
};

}  // namespace muster::testing
