// What evaluations decide: whether the run ends early, and how often its learning rate has fallen.
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

  // A result may end the run or lower its rate: no step is ordered before it is there.
  bool any() const;
  // Takes the evaluations that are due whatever the run's length, in their order. So a run that is
  // made longer decides as one that was so long from the beginning.
  void Add(const EvaluationResult& result);

  // Why the run is to end with the last result, or "".
  std::string StopReason() const;
  // How often the rate has been multiplied by learning_rate.factor.
  int64_t reductions() const { return state_.reductions(); }
  // Why it was the last time.
  std::string ReductionReason() const;

  // A checkpoint keeps this, and a resumed run begins with it.
  const checkpoint::Decisions& Keep() const { return state_; }
  void Restore(const checkpoint::Decisions& kept) { state_ = kept; }

 private:
  const config::Evaluation evaluation_;
  const config::LearningRate rate_;
  checkpoint::Decisions state_;
};

}  // namespace muster
