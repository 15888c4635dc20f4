// The results of a run's evaluations: the last of each set, and the best.
//
// Owner: Progress.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/checkpoint.pb.h"
#include "proto/events.pb.h"
#include "ps/evaluate/evaluation.h"

namespace muster {

events::Scores ScoresOf(const EvaluationResult& result);

class EvaluationRecord {
 public:
  void Add(const EvaluationResult& result);
  void StepEnded();

  // The last evaluation on the set that drives decisions (the validation set if it was evaluated).
  const std::optional<EvaluationResult>& last() const { return validated_ ? validated_ : tested_; }
  // The step of the best evaluation on that set; 0 if there is none with a finite loss.
  int64_t best_step() const { return best_.step; }
  const std::optional<EvaluationResult>& validated() const { return validated_; }
  const std::optional<EvaluationResult>& tested() const { return tested_; }

  // The state that checkpoints save.
  void Keep(checkpoint::Progress& kept) const;
  void Restore(const checkpoint::Progress& kept);
  void Put(events::Summary& summary) const;

 private:
  struct Best {
    double score = 0;
    std::optional<double> loss;
    int64_t step = 0;
  };
  std::optional<EvaluationResult> validated_, tested_;
  Best best_;
};

}  // namespace muster
