// Puts a checkpoint on the disk: a folder that is there whole, or not at all.
#pragma once

#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_name.h"
#include "proto/checkpoint.pb.h"
#include "ps/record/tensor_image.h"

namespace muster {

struct CheckpointToWrite {
  std::string run_dir;
  CheckpointName name;
  checkpoint::State state;  // without its tensors, which are added here
  std::vector<StoredTensor> tensors;
  // Reaches the disk before the checkpoint that counts its bytes; -1: there is none.
  int metrics_fd = -1;
  // Removed when the new one is there for good, and not before.
  std::vector<CheckpointName> expired;
};

// In this order: both files, written and synced in a folder with another name; the folder synced,
// renamed, and the folder around it synced; then what is expired goes. Throws Error(kFailure),
// naming the file; then nothing is expired, and what was there is as before. May block for as long
// as the disk does: not for the server's loop.
void WriteCheckpoint(const CheckpointToWrite& what, const TensorImage& image);

// Removes what a server that was killed in the middle has left. Never throws: leftovers do no harm.
void RemoveLeftovers(const std::string& run_dir);

}  // namespace muster
