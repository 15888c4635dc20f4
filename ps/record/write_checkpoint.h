// Writes a checkpoint atomically: the folder is complete or does not exist.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_name.h"
#include "proto/checkpoint.pb.h"
#include "ps/record/tensor_image.h"

namespace muster {

struct CheckpointToWrite {
  std::string run_dir;
  CheckpointName name;
  checkpoint::State state;  // without its tensors, which WriteCheckpoint adds
  std::vector<StoredTensor> tensors;
  std::shared_ptr<const std::string> program;  // null: the program has no state
  // Descriptor of run.events, which is synced before the checkpoint that counts its bytes; -1:
  // none. metrics.jsonl can be made from it.
  int log_fd = -1;
  // Checkpoints to remove after the new one is on disk.
  std::vector<CheckpointName> expired;
};

// Writes and syncs all files in a temporary folder, syncs and renames the folder, syncs its
// parent, and then removes expired checkpoints. If this fails, throws Error(kFailure) that names
// the file, and removes nothing. May block as long as the disk does, so do not call it on the loop
// thread.
void WriteCheckpoint(const CheckpointToWrite& what, const TensorImage& image);

// Removes temporary folders of a server that was killed. Never throws: leftovers are harmless.
void RemoveLeftovers(const std::string& run_dir);

}  // namespace muster
