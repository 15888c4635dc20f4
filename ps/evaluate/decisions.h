// Decisions from evaluations: early stopping and learning rate reductions.
//
// Owner: the run.
#pragma once

#include <cstdint>
#include <string>

#include "proto/checkpoint.pb.h"
#include "proto/config.pb.h"
#include "ps/evaluate/evaluation.h"

namespace muster {

class Decisions {
 public:
  explicit Decisions(const config::Config& config)
      : evaluation_(config.evaluation()), rate_(config.learning_rate()) {}

  // Whether a result can end the run or reduce the learning rate. If so, the next step must wait
  // for it.
  bool any() const;
  // Adds the result of a regular evaluation. Call in order. Do not add the evaluation at the end of
  // a run unless it was due anyway: an extended run must decide as if it had been longer from the
  // beginning.
  void Add(const EvaluationResult& result);

  // Why the run must stop after the last result, or "".
  std::string StopReason() const;
  // Number of times the learning rate has been multiplied by learning_rate.factor.
  int64_t reductions() const { return state_.reductions(); }
  std::string ReductionReason() const;

  // The state that checkpoints save.
  const checkpoint::Decisions& Keep() const { return state_; }
  void Restore(const checkpoint::Decisions& kept) { state_ = kept; }

 private:
  const config::Evaluation evaluation_;
  const config::LearningRate rate_;
  checkpoint::Decisions state_;
};

}  // namespace muster
