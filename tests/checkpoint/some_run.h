// A run's variables and checkpoints of it, in a directory of the test's own.
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

  // Every tensor, also of image(), gets values that no other step has.
  const TensorImage& image() const { return image_; }
  CheckpointToWrite At(const CheckpointName& name);
  // Throws what WriteCheckpoint throws.
  void Write(const CheckpointName& name, std::vector<CheckpointName> expired = {});
  // Whether its tensors have the values of that step.
  bool Holds(const CheckpointReader& reader) const;
  // The one that a run would go on from, if its tensors are what they should be.
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
