// The checkpoints of a run that are on the disk, and how good they are.
//
// Owner: Checkpoints. Used in the loop's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "proto/config.pb.h"
#include "ps/record/resume.h"
#include "ps/record/retention.h"

namespace muster {

class KeptCheckpoints {
 public:
  // The run goes on from here.
  void Restore(const ResumePoint& resume);

  // The name of one that this process writes.
  CheckpointName NameOf(int64_t step, bool evaluated) const {
    return {generation_, step, evaluated};
  }
  // Whether the newest one has the same state. A new server has it under its older name.
  bool HasState(const CheckpointName& name) const {
    return newest_ && newest_->step == name.step && newest_->evaluated == name.evaluated;
  }
  // How good the others are, for the state of the next one.
  void PutAccuracies(checkpoint::State& state) const;
  // The checkpoints to remove when this one has been written.
  std::vector<CheckpointName> ExpiredBy(const CheckpointName& name,
                                        const config::Checkpoint& settings) const;
  // It has been written, and these have been removed.
  void Add(const CheckpointName& name, const std::vector<CheckpointName>& expired,
           const std::string& folder);
  // Weights have been evaluated, which may be those of a checkpoint.
  void OnEvaluated(int64_t step, double accuracy);

  // The newest one, and where it is.
  const std::optional<CheckpointName>& newest() const { return newest_; }
  const std::string& newest_in() const { return newest_in_; }

 private:
  int64_t generation_ = 1;
  std::vector<KeptCheckpoint> kept_;                     // oldest first
  std::optional<std::pair<int64_t, double>> evaluated_;  // the last step, and its accuracy
  std::optional<CheckpointName> newest_;
  std::string newest_in_;
};

}  // namespace muster
