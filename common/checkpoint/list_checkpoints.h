// Which checkpoints a run has, and which of them is the newest that is whole.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_name.h"
#include "common/checkpoint/checkpoint_reader.h"

namespace muster {

// Newest first. What is being written, or was when its writer was killed, is none of them.
// Throws Error(kData) if the folder cannot be read.
std::vector<CheckpointName> ListCheckpoints(const std::string& run_dir);

std::string CheckpointFolder(const std::string& run_dir, const CheckpointName& name);

struct DamagedCheckpoint {
  CheckpointName name;
  std::string why;  // names the file
};

struct ChosenCheckpoint {
  std::unique_ptr<CheckpointReader> reader;  // null: none is whole
  CheckpointName name;
  std::vector<DamagedCheckpoint> damaged;  // newer than that, newest first
};

// Reads all of a checkpoint before it is chosen. Throws Error(kUsage) for one of a newer version of
// the format: to pass over it would lose what it holds.
ChosenCheckpoint ChooseCheckpoint(const std::string& run_dir);

// The state of the newest one that looks whole, its tensors unread, for what may be settled before
// that.
checkpoint::State NewestState(const std::string& run_dir);

// What to say where there is none: Error(kData), which names the damage of each that there is.
[[noreturn]] void NoCheckpoint(const std::string& run_dir,
                               const std::vector<DamagedCheckpoint>& damaged);

}  // namespace muster
