// Lists a run's checkpoints and finds the newest complete one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_name.h"
#include "common/checkpoint/checkpoint_reader.h"

namespace muster {

// Lists the checkpoints, newest first, without partly written ones. Throws Error(kData) if the
// folder cannot be read.
std::vector<CheckpointName> ListCheckpoints(const std::string& run_dir);

std::string CheckpointFolder(const std::string& run_dir, const CheckpointName& name);

struct DamagedCheckpoint {
  CheckpointName name;
  std::string why;  // includes the file's name
};

struct ChosenCheckpoint {
  std::unique_ptr<CheckpointReader> reader;  // null: no checkpoint is intact
  CheckpointName name;
  std::vector<DamagedCheckpoint> damaged;  // newer than the chosen one, newest first
};

// Chooses the newest checkpoint that passes a full verification. Throws Error(kUsage) if a
// checkpoint has a newer version of the format, because skipping it would lose its progress.
ChosenCheckpoint ChooseCheckpoint(const std::string& run_dir);

// Returns the state of the newest checkpoint that looks intact. Does not verify its tensors; use it
// for decisions that come before the verification.
checkpoint::State NewestState(const std::string& run_dir);

// Throws Error(kData) that lists the damage to each checkpoint, if there are any.
[[noreturn]] void NoCheckpoint(const std::string& run_dir,
                               const std::vector<DamagedCheckpoint>& damaged);

}  // namespace muster
