// Results of a run's evaluations: the last one of each set, and the best one.
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
  // A step has ended.
  void StepEnded();

  // The last evaluation, if there was one, and the step of the best one so far: of those on the set
  // that chooses, which is the validation set where one was evaluated.
  const std::optional<EvaluationResult>& last() const { return validated_ ? validated_ : tested_; }
  int64_t best_step() const { return best_.step; }
  // The last evaluation of each set.
  const std::optional<EvaluationResult>& validated() const { return validated_; }
  const std::optional<EvaluationResult>& tested() const { return tested_; }

  // A checkpoint keeps this, and a resumed run begins with it.
  void Keep(checkpoint::Progress& kept) const;
  void Restore(const checkpoint::Progress& kept);
  void Put(events::Summary& summary) const;

 private:
  struct Best {
    double accuracy = 0;
    std::optional<double> loss;
    int64_t step = 0;
  };
  std::optional<EvaluationResult> validated_, tested_;
  Best best_;
};

}  // namespace muster
