// The checkpoints of a run on disk and their accuracies.
//
// Owner: Checkpoints. Used on the loop thread.
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
  void Restore(const ResumePoint& resume);

  // The name of a checkpoint that this process writes.
  CheckpointName NameOf(int64_t step, bool evaluated) const {
    return {generation_, step, evaluated};
  }
  // Adds the known accuracies to the state of the next checkpoint.
  void PutAccuracies(checkpoint::State& state) const;
  // The checkpoints to remove after this one has been written.
  std::vector<CheckpointName> ExpiredBy(const CheckpointName& name,
                                        const config::Checkpoint& settings) const;
  // Called when this checkpoint has been written and the expired ones have been removed.
  void Add(const CheckpointName& name, const std::vector<CheckpointName>& expired,
           const std::string& folder);
  // Called when weights have been evaluated, possibly those of a checkpoint.
  void OnEvaluated(int64_t step, double accuracy);

  const std::optional<CheckpointName>& newest() const { return newest_; }
  // The folder of the newest checkpoint.
  const std::string& newest_in() const { return newest_in_; }

 private:
  int64_t generation_ = 1;
  std::vector<KeptCheckpoint> kept_;                     // oldest first
  std::optional<std::pair<int64_t, double>> evaluated_;  // step and accuracy of the last evaluation
  std::optional<CheckpointName> newest_;
  std::string newest_in_;
};

}  // namespace muster
