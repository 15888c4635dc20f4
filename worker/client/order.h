// What the server wants next of a worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/plan/slices.h"

namespace muster {

// One subtree of slices that this worker computes in one step: under this number its losses and its
// gradient are sent, which lies in this gradient buffer.
struct WorkLease {
  uint64_t id = 0;
  TreeNode node;
  size_t arena = 0;
};

struct Order {
  // kRedo: a subtree that somebody else was to compute, before anything else. kFence: all that this
  // worker has not sent yet is not wanted any more; it drops its work and says Ready again.
  enum class Kind { kTrain, kEvaluate, kRedo, kFence, kStop };
  Kind kind;
  int64_t version = 0;            // use W(version); the step to train, too
  int64_t samples = 0;            // kTrain, kRedo: of the whole batch
  uint32_t assignment = 0;        // kTrain: the number of the one that the leases follow
  std::vector<WorkLease> leases;  // kTrain; kRedo: one
  std::vector<uint32_t> chunks;   // kRedo: push these only
  int64_t block_size = 0;         // kEvaluate
  Range blocks;                   // kEvaluate: of this worker
  bool average = false;           // kEvaluate: on the moving average of W(version)
  bool predictions = false;       // kEvaluate: report label and prediction of each sample
  bool completed = false;         // kStop: the run reached its end
  std::string reason;             // kStop

  // What must be done before what was ordered earlier.
  bool urgent() const { return kind == Kind::kRedo || kind == Kind::kFence; }
};

}  // namespace muster
